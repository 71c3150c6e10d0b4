// The official TypeScript SDK 2.x as a client: legacy, or modern by negotiation or pin.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { carryOut, headers, launched, plan, say } from './plan.mjs';

const mode = ['legacy', 'auto'].includes(plan.mode) ? plan.mode : { pin: plan.mode };
const client = new Client({ name: 'interop-typescript-v2', version: '1.0.0' }, { versionNegotiation: { mode } });
client.setNotificationHandler('notifications/message', ({ params }) =>
  say({ step: 'log', data: params.data, level: params.level }),
);
const transport = launched
  ? new StdioClientTransport(launched)
  : new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } });
await client.connect(transport);
const modern = () => client.getProtocolEra() === 'modern';
await carryOut({
  client,
  protocol: () => client.getNegotiatedProtocolVersion(),
  modern,
  call: (params, options) => {
    const meta = modern() ? { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } } : {};
    return client.callTool({ ...params, ...meta }, options);
  },
});
if (!modern()) await transport.terminateSession?.();
await client.close();
say({ step: 'close' });
