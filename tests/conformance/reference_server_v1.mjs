// The surface that the official conformance suite calls, on the official TypeScript SDK 1.x, which is legacy only.
//
// `reference_server_v1.mjs http PORT` (endpoint `/mcp` on loopback) or `reference_server_v1.mjs stdio`. What it lists is
// in the file that SURFACE names; it has the tools, and knows the questions, of the revisions it speaks.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  CreateMessageResultSchema,
  CreateMessageResultWithToolsSchema,
  ElicitResultSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListResourcesRequestSchema,
  ListRootsResultSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
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

// What a tool or a prompt is handed besides its arguments: its server, and what goes out on the stream of the call.
function turn(server, extra) {
  const notify = (method, params) => extra.sendNotification({ method, params });
  const elicit = params => extra.sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
  const create = (params, schema) => extra.sendRequest({ method: 'sampling/createMessage', params }, schema);
  return {
    server,
    extra,
    elicit,
    create,
    form: (message, properties, required = []) =>
      elicit({ message, requestedSchema: { type: 'object', properties, required } }),
    sample: async (prompt, maxTokens) => {
      const messages = [{ role: 'user', content: words(prompt) }];
      return (await create({ messages, maxTokens }, CreateMessageResultSchema)).content.text;
    },
    roots: async () => {
      const { roots } = await extra.sendRequest({ method: 'roots/list' }, ListRootsResultSchema);
      return roots.map(({ uri }) => uri);
    },
    log: async (...steps) => {
      for (const data of steps) {
        await notify('notifications/message', { level: 'info', data });
        await sleep(50);
      }
      return text(`Logged ${steps.length} times.`);
    },
    progress: async (...steps) => {
      const progressToken = extra._meta?.progressToken;
      for (const progress of progressToken === undefined ? [] : steps) {
        await notify('notifications/progress', { progressToken, progress, total: 100 });
        await sleep(50);
      }
    },
  };
}

const answered = (label, { action, content }) => text(`${label}: action=${action}, content=${JSON.stringify(content)}`);

async function confirmed(_, { form }) {
  while ((await form('Please confirm', { ok: { type: 'boolean' } }, ['ok'])).action !== 'accept');
  return text('state-ok');
}

let cancelled = 0;

const tools = {
  ...plainTools,

  test_tool_with_logging: (_, { log }) =>
    log('Tool execution started', 'Tool processing data', 'Tool execution completed'),
  test_logging_tool: (_, { log }) => log('A message that only who asked may see'),
  test_tool_with_progress: async (_, { progress }) => {
    await progress(0, 50, 100);
    return text('Reported progress three times.');
  },

  test_sampling: async ({ prompt }, { sample }) => text(`LLM response: ${await sample(prompt, 100)}`),
  test_elicitation: async ({ message }, { form }) => {
    const username = { type: 'string', description: "User's response" };
    const email = { type: 'string', description: "User's email address" };
    return answered('User response', await form(message, { username, email }, ['username', 'email']));
  },
  test_elicitation_sep1034_defaults: async (_, { form }) =>
    answered('Elicitation completed', await form('Please review the defaults', defaults)),
  test_elicitation_sep1330_enums: async (_, { form }) =>
    answered('Elicitation completed', await form('Please choose', choices)),
  test_missing_capability: (_, { server }) => {
    const needed = { requiredCapabilities: { sampling: {} } };
    if (!server.getClientCapabilities()?.sampling) throw new McpError(-32021, 'A client with sampling is needed', needed);
    return text('The client can sample.');
  },
  test_streaming_elicitation: async (_, { form, progress }) => {
    await progress(50);
    return answered('Answer', await form('Go on?', { ok: { type: 'boolean' } }, ['ok']));
  },

  test_input_required_result_elicitation: async (_, { form }) => {
    const { content } = await form('What is your name?', { name: { type: 'string' } }, ['name']);
    return text(`Hello, ${content?.name}!`);
  },
  test_input_required_result_sampling: async (_, { sample }) =>
    text(`The model said: ${await sample('What is the capital of France?', 100)}`),
  test_input_required_result_list_roots: async (_, { roots }) => text(`Roots: ${(await roots()).join(', ')}`),
  test_input_required_result_request_state: confirmed,
  test_input_required_result_tampered_state: confirmed,
  test_input_required_result_multiple_inputs: async (_, { form, sample, roots }) => {
    const name = form('What is your name?', { name: { type: 'string' } }, ['name']);
    await Promise.all([name, sample('Generate a greeting', 50), roots()]);
    return text('All answers are there.');
  },
  test_input_required_result_multi_round: async (_, { form }) => {
    const name = await form('Step 1: What is your name?', { name: { type: 'string' } }, ['name']);
    const color = await form('Step 2: What is your favorite color?', { color: { type: 'string' } }, ['color']);
    return text(`${name.content?.name} likes ${color.content?.color}.`);
  },

  test_trigger_tool_change: async (_, { server }) => {
    toggle(surface.tools, addedTool);
    await server.sendToolListChanged();
    return text('The list of tools has changed.');
  },
  test_trigger_prompt_change: async (_, { server }) => {
    toggle(surface.prompts, addedPrompt);
    await server.sendPromptListChanged();
    return text('The list of prompts has changed.');
  },

  // What the suite does not call, and the matrix of SDKs does.
  test_url_elicitation: async (_, { elicit }) => {
    const url = 'https://example.com/sign-in?state=x';
    const { action } = await elicit({ mode: 'url', message: 'Please sign in', url, elicitationId: 'sign-in' });
    return text(`action=${action}`);
  },
  test_sampling_with_tools: async (_, { create }) => {
    const messages = [{ role: 'user', content: words('What is the weather?') }];
    const weather = { name: 'weather', description: 'Tells the weather', inputSchema: { type: 'object' } };
    const { content } = await create({ messages, maxTokens: 100, tools: [weather] }, CreateMessageResultWithToolsSchema);
    return text(`The model uses ${[content].flat().map(({ name }) => name).join(', ')}`);
  },
  test_trigger_resource_update: async (_, { server }) => {
    await server.sendResourceUpdated({ uri: 'test://watched-resource' });
    return text('The resource has changed.');
  },
  test_wait: async (_, { extra }) => {
    try {
      await sleep(60_000, undefined, { signal: extra.signal });
    } catch {
      cancelled += 1;
    }
    return text('Nobody wanted it to end.');
  },
  test_cancellations: () => text(String(cancelled)),
};

const prompts = {
  ...plainPrompts,
  test_input_required_result_prompt: async (_, { form }) => {
    const { content } = await form('What context should it use?', { context: { type: 'string' } }, ['context']);
    return said(words(`Context: ${content?.context}`));
  },
};

function build() {
  const changes = { listChanged: true };
  const capabilities = { tools: changes, prompts: changes, resources: { subscribe: true }, completions: {}, logging: {} };
  const server = new Server({ name: 'conformance-reference-typescript-1', version: '1.0.0' }, { capabilities });
  const named = (table, what) => ({ params }, extra) => {
    const act = table[params.name];
    if (!act) throw new McpError(-32602, `Unknown ${what}: ${params.name}`);
    return act(params.arguments ?? {}, turn(server, extra));
  };
  // A tool that this SDK's revisions know no question for is not there.
  const isThere = one => one.name in tools || surface.added.some(({ name }) => name === one.name);
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: surface.tools.filter(isThere) }));
  server.setRequestHandler(CallToolRequestSchema, named(tools, 'tool'));
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: surface.prompts }));
  server.setRequestHandler(GetPromptRequestSchema, named(prompts, 'prompt'));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: surface.resources }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: surface.resourceTemplates }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
    const found = read(params.uri);
    if (found) return { contents: [found] };
    throw new McpError(-32002, 'Resource not found', { uri: params.uri });
  });
  server.setRequestHandler(CompleteRequestSchema, ({ params }) => complete(params));
  server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
  return server;
}

function serveHttp(port) {
  const hosts = ['127.0.0.1', 'localhost', '[::1]'].map(host => `${host}:${port}`);
  const sessions = new Map();
  const begin = async () => {
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: id => void sessions.set(id, transport),
      onsessionclosed: id => void sessions.delete(id),
      enableDnsRebindingProtection: true,
      allowedHosts: hosts,
      allowedOrigins: hosts.map(host => `http://${host}`),
    });
    await build().connect(transport);
    return transport;
  };
  createServer(async (request, response) => {
    const id = request.headers['mcp-session-id'];
    if (id && !sessions.has(id)) response.writeHead(404).end();
    else await (sessions.get(id) ?? (await begin())).handleRequest(request, response);
  }).listen(Number(port), '127.0.0.1');
}

const [transport, port] = process.argv.slice(2);
if (transport === 'stdio') await build().connect(new StdioServerTransport());
else if (transport === 'http') serveHttp(port);
else throw new Error('usage: reference_server_v1.mjs stdio | http PORT');
