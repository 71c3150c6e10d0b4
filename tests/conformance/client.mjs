// The client that the suite's client scenarios judge, on the official TypeScript SDK 2.x.
//
// `client.mjs URL`: does what the scenario named in MCP_CONFORMANCE_SCENARIO wants, in the era that CLIENT_MODE says
// (`legacy`, `auto`, or a revision to insist on). It calls whatever is listed: what a server must not be asked for
// is for the SDK and for Waypost to leave out, not for this program.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const wanted = process.env.CLIENT_MODE ?? 'legacy';
const direct = process.env.CONFORMANCE_DIRECT === '1';
const given = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const mode = ['legacy', 'auto'].includes(wanted) ? wanted : { pin: wanted };

// Arguments for a schema that says what they have to be, as far as the scenarios need it.
const argumentsFor = ({ properties = {}, required = [] }) =>
  Object.fromEntries(required.map(name => [name, { string: 'x', number: 2, integer: 2, object: {}, array: [] }[properties[name]?.type] ?? null]));

// One call after another; a tool that fails does not keep the next from being called, and fails the run in the end.
async function callAll(client, calls) {
  const failed = [];
  for (const call of calls) {
    try {
      const result = await client.callTool(call);
      if (result.isError) failed.push(`${call.name}: ${JSON.stringify(result.content)}`);
    } catch (error) {
      failed.push(`${call.name}: ${error}`);
    }
  }
  if (failed.length > 0) throw new Error(failed.join('\n'));
}

const listed = async client => (await client.listTools()).tools;

const scenarios = {
  initialize: listed,

  tools_call: async client => callAll(client, (await listed(client)).map(({ name }) => ({ name, arguments: { a: 2, b: 3 } }))),

  'elicitation-sep1034-client-defaults': client => client.callTool({ name: 'test_client_elicitation_defaults', arguments: {} }),

  'sse-retry': client => client.callTool({ name: 'test_reconnection', arguments: {} }),

  'request-metadata': listed,

  // Two tools ask, one call of another comes while they wait, and the last says nothing of its kind of result.
  'sep-2322-client-request-state': async client => {
    const names = (await listed(client)).map(({ name }) => name);
    const ended = await Promise.allSettled(names.map(name => client.callTool({ name, arguments: {} })));
    // The SDK insists on a kind of result; the suite, and Waypost, take none to mean a complete one.
    const bad = ended.filter(({ reason }, at) => reason && !(direct && names[at] === 'test_mrtr_no_result_type'));
    if (bad.length > 0) throw bad[0].reason;
  },

  'http-standard-headers': async client => {
    await callAll(client, (await listed(client)).map(({ name }) => ({ name, arguments: {} })));
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },

  'http-custom-headers': async client => {
    await listed(client);
    await callAll(client, given.toolCalls);
  },

  'http-invalid-tool-headers': async client =>
    callAll(client, (await listed(client)).map(({ name, inputSchema }) => ({ name, arguments: argumentsFor(inputSchema) }))),

  'json-schema-ref-no-deref': listed,

  'json-schema-2020-12-preservation': async client => {
    const { inputSchema } = (await listed(client)).find(({ name }) => name === 'json_schema_2020_12_tool');
    await client.callTool({ name: 'json_schema_echo', arguments: { schema: inputSchema } });
  },
};

const act = scenarios[scenario];
if (!act) throw new Error(`nothing is written for the scenario ${scenario}`);
const client = new Client(
  { name: 'conformance-client', version: '1.0.0' },
  { versionNegotiation: { mode }, capabilities: { elicitation: { form: { applyDefaults: true } } } },
);
client.setRequestHandler('elicitation/create', async ({ params }) => ({
  action: 'accept',
  content: 'confirmed' in params.requestedSchema.properties ? { confirmed: true } : {},
}));
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
await act(client);
await client.close();
