// Tasks by the official ext-tasks package on the TypeScript SDK 2.x, whatever kind the server has:
// `tasks.mjs URL TOKEN legacy|modern PLAN`, with a plan of calls as JSON. Prints what came of each.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';

const [url, token, era, plan] = process.argv.slice(2);
const authorization = { Authorization: `Bearer ${token}` };
const clientInfo = { name: 'interop-ext-tasks', version: '1.0.0' };
const version = '2026-07-28';
const mode = era === 'legacy' ? 'legacy' : { pin: version };
const clientCapabilities = { elicitation: { form: {} } };
const client = new Client(clientInfo, { versionNegotiation: { mode }, capabilities: clientCapabilities });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: authorization } }));

let lastId = 0;
async function rawDispatch(request, options) {
  const { name, taskId } = request.params ?? {};
  const named = taskId ?? name;
  const response = await fetch(url, {
    method: 'POST',
    signal: options?.signal,
    headers: {
      ...authorization,
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': version,
      'Mcp-Method': request.method,
      ...(named === undefined ? {} : { 'Mcp-Name': named }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: ++lastId, ...request }),
  });
  const body = await response.text();
  const events = [...body.matchAll(/^data: ?(.*)$/gm)].map(match => match[1]);
  const message = JSON.parse(response.headers.get('content-type').startsWith('text/event-stream') ? events.at(-1) : body);
  return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
}

const modern = { rawDispatch, v2RequestFraming: { protocolVersion: version, clientInfo, clientCapabilities } };
const questions = [];
const session = createTaskSessionFromClient(client, {
  endpointId: 'waypost',
  ...(era === 'legacy' ? {} : modern),
  onInputRequest: async request => {
    questions.push(request.params.message);
    return { action: 'accept', content: { name: 'Ada', confirm: true } };
  },
});
const seen = [];
for (const { tool, arguments: args, cancel } of JSON.parse(plan)) {
  try {
    const execution = await session.callTool(tool, args, { task: { preference: 'prefer', retentionMs: 60_000 } });
    if (cancel) await execution.cancel();
    const { outcome } = await execution.settle();
    const ended = outcome.status === 'completed' ? resultFromTaskOutcome(outcome) : undefined;
    seen.push({ tool, kind: execution.kind, id: execution.handle?.taskId, status: outcome.status, result: ended });
  } catch (error) {
    seen.push({ tool, failure: String(error) });
  }
}
await session.close();
await client.close();
console.log(JSON.stringify({ seen, questions }));
