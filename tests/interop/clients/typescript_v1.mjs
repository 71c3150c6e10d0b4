// The official TypeScript SDK 1.x as a client: legacy only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { carryOut, headers, plan, say } from './plan.mjs';

const client = new Client({ name: 'interop-typescript-v1', version: '1.0.0' });
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) =>
  say({ step: 'log', data: params.data, level: params.level }),
);
const transport = new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } });
await client.connect(transport);
await carryOut({
  client,
  protocol: () => transport.protocolVersion,
  modern: () => false,
  call: (params, options) => client.callTool(params, undefined, options),
});
await transport.terminateSession();
await client.close();
say({ step: 'close' });
