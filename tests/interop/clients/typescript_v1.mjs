// The official TypeScript SDK 1.x as a client: legacy only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { carryOut, headers, plan, say } from './plan.mjs';

const client = new Client({ name: 'interop-typescript-v1', version: '1.0.0' });
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) =>
  say({ step: 'log', data: params.data, level: params.level }),
);
const url = new URL(plan.url);
const overSse = url.pathname.endsWith('/sse');
const transport = new (overSse ? SSEClientTransport : StreamableHTTPClientTransport)(url, { requestInit: { headers } });
await client.connect(transport);
await carryOut({
  client,
  protocol: () => (overSse ? transport._protocolVersion : transport.protocolVersion),
  modern: () => false,
  call: (params, options) => client.callTool(params, undefined, options),
});
if (!overSse) await transport.terminateSession();
await client.close();
say({ step: 'close' });
