// The official TypeScript SDK 2.x as a client of the matrix: legacy, or a revision to insist on.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { answers, carryOut } from './matrix.mjs';
import { headers, plan, say } from './plan.mjs';

const mode = plan.mode === 'legacy' ? plan.mode : { pin: plan.mode };
const capabilities = plan.can_be_asked ? { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} } : {};
const client = new Client({ name: 'matrix-typescript-v2', version: '1.0.0' }, { versionNegotiation: { mode }, capabilities });
const heard = [];
for (const method of ['message', 'resources/updated', 'tools/list_changed']) {
  client.setNotificationHandler(`notifications/${method}`, notification => void heard.push(notification));
}
if (plan.can_be_asked) {
  const own = answers(plan.nonce, say);
  client.setRequestHandler('elicitation/create', async ({ params }) => own.elicitation(params));
  client.setRequestHandler('sampling/createMessage', async ({ params }) => own.sampling(params));
  client.setRequestHandler('roots/list', async () => own.roots());
}
const transport = new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } });
await client.connect(transport);
const modern = client.getProtocolEra() === 'modern';
if (!modern) await client.setLoggingLevel(plan.can_be_asked ? 'info' : 'error');
const wished = modern && plan.can_be_asked ? { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } } : {};
const peer = {
  client,
  able: plan.can_be_asked,
  call: (params, options) => client.callTool({ ...params, ...wished }, options),
  watch: async uri => {
    if (modern) {
      const stream = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
      return () => stream.close();
    }
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
};
await carryOut(peer, plan, heard, say);
if (!modern) await transport.terminateSession();
await client.close();
say({ feature: 'close' });
