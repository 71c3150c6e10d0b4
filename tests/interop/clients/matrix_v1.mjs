// The official TypeScript SDK 1.x as a client of the matrix: legacy only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { answers, carryOut } from './matrix.mjs';
import { headers, plan, say } from './plan.mjs';

const capabilities = plan.can_be_asked ? { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} } : {};
const client = new Client({ name: 'matrix-typescript-v1', version: '1.0.0' }, { capabilities });
const heard = [];
for (const schema of [LoggingMessageNotificationSchema, ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema]) {
  client.setNotificationHandler(schema, notification => void heard.push(notification));
}
if (plan.can_be_asked) {
  const own = answers(plan.nonce, say);
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => own.elicitation(params));
  client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => own.sampling(params));
  client.setRequestHandler(ListRootsRequestSchema, own.roots);
}
const transport = new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers } });
await client.connect(transport);
await client.setLoggingLevel(plan.can_be_asked ? 'info' : 'error');
const peer = {
  client,
  able: plan.can_be_asked,
  call: (params, options) => client.callTool(params, undefined, options),
  watch: async uri => {
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
};
await carryOut(peer, plan, heard, say);
await transport.terminateSession();
await client.close();
say({ feature: 'close' });
