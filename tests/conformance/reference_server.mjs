// The surface that the official conformance suite calls, on the official TypeScript SDK 2.x.
//
// `reference_server.mjs http PORT [modern]` serves both eras, or the modern one alone (endpoint `/mcp` on loopback);
// `reference_server.mjs stdio` serves both. What it lists is in the file that SURFACE names. Questions are put in the
// newest form, which the SDK turns into requests of its own for an older client.

import { randomBytes, randomUUID } from 'node:crypto';
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
import {
  choices,
  complete,
  defaults,
  plainPrompts,
  plainTools,
  read,
  said,
  surface,
  text,
  toggle,
  words,
} from './reference_content.mjs';

const [addedTool, addedPrompt] = surface.added;
const states = createRequestStateCodec({ key: randomBytes(32) });
// Tells the streams of modern clients that something changed; over stdio the SDK does so by itself.
let notify;

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

const tools = {
  ...plainTools,

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
      form('Please review the defaults', defaults),
    'Elicitation completed',
  ),
  test_elicitation_sep1330_enums: asks(
    () =>
      form('Please choose', choices),
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

const prompts = {
  ...plainPrompts,
  test_input_required_result_prompt: (_, { accepted }) => {
    const answer = accepted('user_context');
    const question = form('What context should the prompt use?', { context: { type: 'string' } }, ['context']);
    return answer ? said(words(`Context: ${answer.context}`)) : inputRequired({ inputRequests: { user_context: question } });
  },
};

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
  server.setRequestHandler('resources/read', ({ params }) => {
    const found = read(params.uri);
    if (found) return { contents: [found] };
    throw new ProtocolError(era === 'modern' ? -32602 : -32002, 'Resource not found', { uri: params.uri });
  });
  server.setRequestHandler('completion/complete', ({ params }) => complete(params));
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
