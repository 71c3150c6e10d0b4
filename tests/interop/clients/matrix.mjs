// What the TypeScript clients of the matrix share: every feature at every server, once. What came is printed as JSON
// lines; what it has to be, `matrix.py` knows.

import { setTimeout as sleep } from 'node:timers/promises';

export const WATCHED = 'test://watched-resource';
const PATIENCE = 20_000;

/** The answers that this client gives, whatever the SDK makes of the question. */
export const answers = (nonce, say) => ({
  elicitation: params => {
    if (params.mode === 'url') {
      say({ feature: 'url asked', url: params.url });
      return { action: 'accept' };
    }
    const [action, name] = params.message.split(' ');
    return action === 'accept' ? { action, content: { username: name, email: `${name}@example.com` } } : { action };
  },
  sampling: params => {
    const answer = { role: 'assistant', model: 'matrix' };
    if (params.tools) {
      return { ...answer, stopReason: 'toolUse', content: { type: 'tool_use', id: 'u1', name: params.tools[0].name, input: {} } };
    }
    return { ...answer, content: { type: 'text', text: `model: ${[params.messages[0].content].flat()[0].text}` } };
  },
  roots: () => ({ roots: [{ uri: `file:///matrix/${nonce}` }] }),
});

/**
 * `peer` adapts one SDK: `{ client, able, call(params, options), watch(uri) → stop() }`; `heard` is where its
 * notifications go, each as `{ method, params }`.
 */
export async function carryOut(peer, plan, heard, say) {
  const { client } = peer;
  const listed = await everything(client);
  for (const server of plan.servers) {
    const record = (feature, got) => say({ server, feature, got });
    const call = async (tool, args = {}, options = {}) => {
      try {
        const result = await peer.call({ name: `${server}__${tool}`, arguments: args }, { timeout: PATIENCE, ...options });
        return { text: result.content?.[0]?.text, isError: result.isError ?? false };
      } catch (error) {
        return { error: { code: error.code ?? null, message: String(error.message) } };
      }
    };
    record('form accept', await call('test_elicitation', { message: `accept ${plan.nonce}` }));
    record('sampling', await call('test_sampling', { prompt: plan.nonce }));
    record('roots', await call('test_input_required_result_list_roots'));
    heard.length = 0;
    const logged = await call('test_tool_with_logging');
    record('log', { ...logged, heard: heard.filter(({ method }) => method === 'notifications/message').map(({ params }) => params.data) });
    if (!peer.able) continue;
    record('form decline', await call('test_elicitation', { message: 'decline' }));
    record('form cancel', await call('test_elicitation', { message: 'cancel' }));
    record('url', await call('test_url_elicitation'));
    record('sampling with tools', await call('test_sampling_with_tools'));
    const steps = [];
    const progressed = await call('test_tool_with_progress', {}, { onprogress: ({ progress }) => steps.push(progress) });
    record('progress', { ...progressed, steps });
    record('completion', await complete(client, server));
    record('cancellation', await cancel(call));
    const uri = listed.find(one => one.uri === `${WATCHED}#@${server}`)?.uri ?? WATCHED;
    const stop = await peer.watch(uri);
    record('resource update', await updated(call, uri, heard));
    const patience = plan.without_list_change.includes(server) ? 1000 : PATIENCE;
    record('list change', await changed(call, client, `${server}__test_added_tool`, heard, patience));
    await stop();
  }
}

async function everything(client) {
  const found = [];
  let cursor;
  do {
    const page = await client.listResources(cursor ? { cursor } : undefined);
    found.push(...page.resources);
    cursor = page.nextCursor;
  } while (cursor);
  return found;
}

async function complete(client, server) {
  const ref = { type: 'ref/prompt', name: `${server}__test_prompt_with_arguments` };
  try {
    return { values: (await client.complete({ ref, argument: { name: 'arg1', value: 'par' } })).completion.values };
  } catch (error) {
    return { error: { code: error.code ?? null, message: String(error.message) } };
  }
}

async function until(reached, patience = PATIENCE) {
  const end = Date.now() + patience;
  while (!(await reached())) {
    if (Date.now() > end) return false;
    await sleep(50);
  }
  return true;
}

async function cancel(call) {
  const count = async () => Number((await call('test_cancellations')).text);
  const before = await count();
  const abort = new AbortController();
  const waiting = call('test_wait', {}, { signal: abort.signal });
  await sleep(300);
  abort.abort('enough');
  const ended = await waiting;
  return { ended: 'error' in ended, cancelled: await until(async () => (await count()) === before + 1) };
}

async function updated(call, uri, heard) {
  heard.length = 0;
  const told = await call('test_trigger_resource_update');
  const is = ({ method, params }) => method === 'notifications/resources/updated' && params.uri === uri;
  return { ...told, heard: await until(() => heard.some(is)) };
}

// The tool comes and goes, and each time somebody says so after the list is the new one.
async function changed(call, client, tool, heard, patience) {
  const seen = [];
  for (const there of [true, false]) {
    heard.length = 0;
    await call('test_trigger_tool_change');
    const is = ({ method }) => method === 'notifications/tools/list_changed';
    const told = await until(() => heard.some(is), patience);
    seen.push(told && (await names(client)).includes(tool) === there);
  }
  return { seen };
}

async function names(client) {
  const found = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    found.push(...page.tools.map(({ name }) => name));
    cursor = page.nextCursor;
  } while (cursor);
  return found;
}
