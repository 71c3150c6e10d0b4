// The official TypeScript SDK 1.x as a client: legacy only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { carryOut, headers, launched, plan, say } from './plan.mjs';

const client = new Client({ name: 'interop-typescript-v1', version: '1.0.0' });
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) =>
  say({ step: 'log', data: params.data, level: params.level }),
);
const overSse = !launched && new URL(plan.url).pathname.endsWith('/sse');
const connect = () => {
  if (launched) return new StdioClientTransport(launched);
  const Transport = overSse ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Transport(new URL(plan.url), { requestInit: { headers } });
};
const transport = connect();
// This SDK tells the revision to nobody but the transport.
let protocol;
const agreed = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = version => { protocol = version; agreed?.(version); };
await client.connect(transport);
await carryOut({
  client,
  protocol: () => protocol ?? transport.protocolVersion,
  modern: () => false,
  call: (params, options) => client.callTool(params, undefined, options),
});
await transport.terminateSession?.();
await client.close();
say({ step: 'close' });
