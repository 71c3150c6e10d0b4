// What the TypeScript clients share: carries out a plan with a client of either SDK generation.
// Results go to standard output as JSON lines.

import { readFileSync } from 'node:fs';

export const say = record => console.log(JSON.stringify(record));
export const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
export const headers = plan.token ? { Authorization: `Bearer ${plan.token}` } : {};

/** What to launch, for a client that speaks over stdio. */
export const launched = plan.command && {
  command: plan.command[0],
  args: plan.command.slice(1),
  env: plan.env,
  stderr: 'inherit',
};

/**
 * `peer` adapts one SDK: `{ protocol, modern, client, call(params, options) }`.
 */
export async function carryOut(peer) {
  const { client } = peer;
  say({
    step: 'connect',
    protocol: peer.protocol(),
    server: client.getServerVersion() ?? null,
    capabilities: client.getServerCapabilities() ?? {},
  });
  if (!peer.modern()) {
    await client.ping();
    say({ step: 'ping' });
    if (client.getServerCapabilities()?.logging) await client.setLoggingLevel('info');
  }
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor);
  say({ step: 'list', tools });

  const call = async (step, wanted) => {
    const events = [];
    const options = { timeout: 60_000 };
    if (step === 'progress') options.onprogress = event => events.push([event.progress, event.total ?? null, event.message ?? null]);
    try {
      const result = await peer.call({ name: wanted.tool, arguments: wanted.arguments }, options);
      say({ step, id: wanted.id, result, events });
    } catch (error) {
      if (typeof error.code === 'number') say({ step, id: wanted.id, error: { code: error.code, message: error.message } });
      else say({ step, id: wanted.id, failure: String(error) });
    }
  };
  for (const step of ['call', 'unknown', 'large', 'progress']) {
    for (const wanted of plan[step]) await call(step, wanted);
  }
  const started = performance.now();
  await Promise.all(plan.parallel.map(wanted => call('parallel', wanted)));
  say({ step: 'parallel-time', seconds: (performance.now() - started) / 1000 });
}
