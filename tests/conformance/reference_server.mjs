// The surface that the official conformance suite calls, on the official TypeScript SDK 2.x.
//
// `reference_server.mjs http PORT [modern]` serves both eras, or the modern one alone (endpoint `/mcp` on loopback);
// `reference_server.mjs stdio` serves both. What it lists is in the file that SURFACE names. Questions are put in the
// newest form, which the SDK turns into requests of its own for an older client.

import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  isLegacyRequest,
} from '@modelcontextprotocol/server';
import {
  NodeStreamableHTTPServerTransport,
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
} from '@modelcontextprotocol/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const surface = JSON.parse(readFileSync(process.env.SURFACE, 'utf8'));
const [addedTool, addedPrompt] = surface.added;
const states = createRequestStateCodec({ key: randomBytes(32) });
// Tells the streams of modern clients that something changed; over stdio the SDK does so by itself.
let notify;

// One red pixel, and an eight samples long silence.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';
const WAV = Buffer.concat([
  Buffer.from('RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00', 'latin1'),
  Buffer.from('\x01\x00\x08\x00data\x08\x00\x00\x00\x80\x80\x80\x80\x80\x80\x80\x80', 'latin1'),
]).toString('base64');

const words = value => ({ type: 'text', text: value });
const text = value => ({ content: [words(value)] });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, body) => ({ type: 'resource', resource: { uri, mimeType, text: body } });
const form = (message, properties, required = []) =>
  inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required } });
const sample = (prompt, maxTokens) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: words(prompt) }], maxTokens });
const NAME = form('What is your name?', { name: { type: 'string' } }, ['name']);

// What a tool is handed besides its arguments: the answers so far, and what belongs to the request.
function turn(server, ctx) {
  const answers = ctx.mcpReq.inputResponses ?? {};
  return {
    server,
    ctx,
    answers,
    accepted: key => (answers[key]?.action === 'accept' ? answers[key].content ?? {} : undefined),
    log: value => ctx.mcpReq.log('info', value),
    can: () => ctx.mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'] ?? server.getClientCapabilities() ?? {},
    progress: async (progress, total) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      if (progressToken === undefined) return;
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total } });
    },
  };
}

const asks = (request, label) => (given, { answers }) => {
  if (!answers.answer) return inputRequired({ inputRequests: { answer: request(given) } });
  const { action, content } = answers.answer;
  return text(`${label}: action=${action}, content=${JSON.stringify(content)}`);
};

async function confirmed(_, { ctx, accepted }) {
  const state = ctx.mcpReq.requestState();
  if (accepted('confirm') && state?.waiting === 'for confirmation') return text('state-ok');
  const inputRequests = { confirm: form('Please confirm', { ok: { type: 'boolean' } }, ['ok']) };
  return inputRequired({ inputRequests, requestState: await states.mint({ waiting: 'for confirmation' }) });
}

function toggle(list, one) {
  const at = list.findIndex(({ name }) => name === one.name);
  if (at < 0) list.push(one);
  else list.splice(at, 1);
}

const options = ['option1', 'option2', 'option3'];
const titled = noun => ['First', 'Second', 'Third'].map((word, at) => ({ const: `value${at + 1}`, title: `${word} ${noun}` }));

const tools = {
  test_simple_text: () => text('This is a simple text response for testing.'),
  test_image_content: () => ({ content: [image] }),
  test_audio_content: () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] }),
  test_embedded_resource: () => ({
    content: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  }),
  test_multiple_content_types: () => ({
    content: [
      words('Multiple content types test:'),
      image,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  }),
  test_error_handling: () => ({ ...text('This tool intentionally returns an error for testing'), isError: true }),
  json_schema_2020_12_tool: given => text(JSON.stringify(given)),
  test_header_parameter: ({ region }) => text(`region ${region}`),

  test_tool_with_logging: async (_, { log }) => {
    for (const step of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await log(step);
      await sleep(50);
    }
    return text('Logged three messages.');
  },
  test_logging_tool: async (_, { log }) => {
    await log('A message that only who asked may see');
    return text('Logged one message.');
  },
  test_tool_with_progress: async (_, { progress }) => {
    for (const done of [0, 50, 100]) {
      await progress(done, 100);
      await sleep(50);
    }
    return text('Reported progress three times.');
  },

  test_sampling: ({ prompt }, { answers }) =>
    answers.answer
      ? text(`LLM response: ${answers.answer.content.text}`)
      : inputRequired({ inputRequests: { answer: sample(prompt, 100) } }),
  test_elicitation: asks(
    ({ message }) =>
      form(
        message,
        {
          username: { type: 'string', description: "User's response" },
          email: { type: 'string', description: "User's email address" },
        },
        ['username', 'email'],
      ),
    'User response',
  ),
  test_elicitation_sep1034_defaults: asks(
    () =>
      form('Please review the defaults', {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true },
      }),
    'Elicitation completed',
  ),
  test_elicitation_sep1330_enums: asks(
    () =>
      form('Please choose', {
        untitledSingle: { type: 'string', enum: options },
        titledSingle: { type: 'string', oneOf: titled('Option') },
        legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
        untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
        titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
      }),
    'Elicitation completed',
  ),
  test_missing_capability: (_, { can }) => {
    if (!can().sampling) throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { sampling: {} } });
    return text('The client can sample.');
  },
  test_streaming_elicitation: async (given, at) => {
    await at.progress(1, 2);
    return asks(() => form('Go on?', { ok: { type: 'boolean' } }, ['ok']), 'Answer')(given, at);
  },

  test_input_required_result_elicitation: (_, { accepted }) => {
    const name = accepted('user_name')?.name;
    return typeof name === 'string' ? text(`Hello, ${name}!`) : inputRequired({ inputRequests: { user_name: NAME } });
  },
  test_input_required_result_sampling: (_, { answers }) =>
    answers.capital_question
      ? text(`The model said: ${answers.capital_question.content?.text}`)
      : inputRequired({ inputRequests: { capital_question: sample('What is the capital of France?', 100) } }),
  test_input_required_result_list_roots: (_, { answers }) =>
    answers.client_roots
      ? text(`Roots: ${answers.client_roots.roots.map(({ uri }) => uri).join(', ')}`)
      : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } }),
  test_input_required_result_request_state: confirmed,
  test_input_required_result_tampered_state: confirmed,
  test_input_required_result_multiple_inputs: async (_, { answers }) => {
    const inputRequests = { user_name: NAME, greeting: sample('Generate a greeting', 50), client_roots: inputRequired.listRoots() };
    if (Object.keys(inputRequests).every(key => key in answers)) return text('All answers are there.');
    return inputRequired({ inputRequests, requestState: await states.mint({ waiting: 'for three' }) });
  },
  test_input_required_result_multi_round: async (_, { ctx, accepted }) => {
    const state = ctx.mcpReq.requestState() ?? {};
    const [first, second] = [accepted('step1'), accepted('step2')];
    if (second && 'name' in state) return text(`${state.name} likes ${second.color}.`);
    const next = first
      ? { step2: form('Step 2: What is your favorite color?', { color: { type: 'string' } }, ['color']) }
      : { step1: form('Step 1: What is your name?', { name: { type: 'string' } }, ['name']) };
    return inputRequired({ inputRequests: next, requestState: await states.mint(first ? { name: first.name } : { round: 1 }) });
  },
  test_input_required_result_capabilities: (_, { can, answers }) => {
    const { elicitation, sampling, roots } = can();
    const inputRequests = {
      ...(elicitation && { user_name: NAME }),
      ...(sampling && { greeting: sample('Generate a greeting', 50) }),
      ...(roots && { client_roots: inputRequired.listRoots() }),
    };
    const done = Object.keys(inputRequests).length === 0 || Object.keys(answers).length > 0;
    return done ? text('Nothing to ask.') : inputRequired({ inputRequests });
  },

  test_trigger_tool_change: async (_, { server }) => {
    toggle(surface.tools, addedTool);
    notify?.toolsChanged();
    await server.sendToolListChanged();
    return text('The list of tools has changed.');
  },
  test_trigger_prompt_change: async (_, { server }) => {
    toggle(surface.prompts, addedPrompt);
    notify?.promptsChanged();
    await server.sendPromptListChanged();
    return text('The list of prompts has changed.');
  },
};

let cancelled = 0;

// What the suite does not call, and the matrix of SDKs does.
Object.assign(tools, {
  test_url_elicitation: (_, { answers }) =>
    answers.answer
      ? text(`action=${answers.answer.action}`)
      : inputRequired({
          inputRequests: {
            answer: inputRequired.elicitUrl({ message: 'Please sign in', url: 'https://example.com/sign-in?state=x' }),
          },
        }),
  test_sampling_with_tools: (_, { answers }) => {
    const blocks = [answers.answer?.content ?? []].flat();
    if (blocks.length > 0) return text(`The model uses ${blocks.map(({ name }) => name).join(', ')}`);
    const question = inputRequired.createMessage({
      messages: [{ role: 'user', content: words('What is the weather?') }],
      maxTokens: 100,
      tools: [{ name: 'weather', description: 'Tells the weather', inputSchema: { type: 'object' } }],
    });
    return inputRequired({ inputRequests: { answer: question } });
  },
  test_trigger_resource_update: async (_, { server }) => {
    const uri = 'test://watched-resource';
    notify?.resourceUpdated(uri);
    await server.sendResourceUpdated({ uri });
    return text('The resource has changed.');
  },
  test_wait: async (_, { ctx }) => {
    try {
      await sleep(60_000, undefined, { signal: ctx.mcpReq.signal });
    } catch {
      cancelled += 1;
    }
    return text('Nobody wanted it to end.');
  },
  test_cancellations: () => text(String(cancelled)),
});

const said = (...blocks) => ({ messages: blocks.map(content => ({ role: 'user', content })) });

const prompts = {
  test_simple_prompt: () => said(words('This is a simple prompt for testing.')),
  test_prompt_with_arguments: ({ arg1, arg2 }) => said(words(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  test_prompt_with_embedded_resource: ({ resourceUri }) =>
    said(
      embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      words('Please process the embedded resource above.'),
    ),
  test_prompt_with_image: () => said(image, words('Please analyze the image above.')),
  test_input_required_result_prompt: (_, { accepted }) => {
    const answer = accepted('user_context');
    const question = form('What context should the prompt use?', { context: { type: 'string' } }, ['context']);
    return answer ? said(words(`Context: ${answer.context}`)) : inputRequired({ inputRequests: { user_context: question } });
  },
};

function read(uri, era) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (uri === 'test://static-text') return { uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' };
  if (uri === 'test://static-binary') return { uri, mimeType: 'image/png', blob: PNG };
  if (uri === 'test://watched-resource') return { uri, mimeType: 'text/plain', text: 'Watched.' };
  if (id) return { uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
  throw new ProtocolError(era === 'modern' ? -32602 : -32002, 'Resource not found', { uri });
}

function build({ era }) {
  const changes = { listChanged: true };
  const capabilities = { tools: changes, prompts: changes, resources: { subscribe: true }, completions: {}, logging: {} };
  const server = new Server(
    { name: 'conformance-reference-typescript', version: '1.0.0' },
    { capabilities, requestState: { verify: states.verify } },
  );
  const named = (table, what) => ({ params }, ctx) => {
    const act = table[params.name];
    if (!act) throw new ProtocolError(-32602, `Unknown ${what}: ${params.name}`);
    return act(params.arguments ?? {}, turn(server, ctx));
  };
  server.setRequestHandler('tools/list', () => ({ tools: surface.tools }));
  server.setRequestHandler('tools/call', named(tools, 'tool'));
  server.setRequestHandler('prompts/list', () => ({ prompts: surface.prompts }));
  server.setRequestHandler('prompts/get', named(prompts, 'prompt'));
  server.setRequestHandler('resources/list', () => ({ resources: surface.resources }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: surface.resourceTemplates }));
  server.setRequestHandler('resources/read', ({ params }) => ({ contents: [read(params.uri, era)] }));
  server.setRequestHandler('completion/complete', ({ params }) => {
    const values = ['paris', 'park', 'party', 'london'].filter(value => value.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
  if (era === 'legacy') {
    server.setRequestHandler('resources/subscribe', () => ({}));
    server.setRequestHandler('resources/unsubscribe', () => ({}));
  }
  return server;
}

// Older clients have sessions, each with a server of its own.
async function serveSession(sessions, request, response, body) {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.handleRequest(request, response, body);
  if (request.headers['mcp-session-id']) return response.writeHead(404).end();
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: id => void sessions.set(id, transport),
    onsessionclosed: id => void sessions.delete(id),
  });
  await build({ era: 'legacy' }).connect(transport);
  return transport.handleRequest(request, response, body);
}

function serveHttp(port, only) {
  const modern = createMcpHandler(build, { legacy: 'reject' });
  notify = modern.notify;
  const serveModern = toNodeHandler(modern);
  const guards = [localhostHostValidation(), localhostOriginValidation()];
  const sessions = new Map();
  createServer(async (request, response) => {
    if (!guards.every(passes => passes(request, response))) return;
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const { method, headers } = request;
    const probe = new Request(`http://127.0.0.1:${port}${request.url}`, { method, headers, ...(body.length > 0 && { body }) });
    let parsed;
    try {
      parsed = body.length > 0 ? JSON.parse(body) : undefined;
    } catch {
      // Whoever serves the request says what is wrong with it.
    }
    if (only !== 'modern' && (await isLegacyRequest(probe, parsed))) await serveSession(sessions, request, response, parsed);
    else await serveModern(request, response, parsed);
  }).listen(Number(port), '127.0.0.1');
}

const [transport, port, only] = process.argv.slice(2);
if (transport === 'stdio') serveStdio(build);
else if (transport === 'http') serveHttp(port, only);
else throw new Error('usage: reference_server.mjs stdio | http PORT [modern]');
