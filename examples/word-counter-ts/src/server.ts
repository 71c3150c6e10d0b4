import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const counts = z.object({
  words: z.number().int().describe('Runs of characters that are not white space'),
  characters: z.number().int().describe('Unicode code points, white space included'),
  lines: z.number().int().describe('Lines; a line break at the end does not open another one'),
});

function count(text: string): z.infer<typeof counts> {
  const lines = text.split(/\r\n|\r|\n/);
  if (lines.at(-1) === '') lines.pop();
  return {
    words: text.match(/\S+/gu)?.length ?? 0,
    characters: [...text].length,
    lines: lines.length,
  };
}

// One factory serves both eras of the protocol: the client's first message decides.
serveStdio(() => {
  const server = new McpServer({ name: 'word-counter', version: '1.0.0' });
  server.registerTool(
    'count_words',
    {
      title: 'Count words',
      description: 'Counts the words, characters and lines of a text',
      inputSchema: z.object({ text: z.string().describe('The text to count') }),
      outputSchema: counts,
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    },
    async ({ text }) => {
      const result = count(text);
      return { content: [{ type: 'text', text: JSON.stringify(result) }], structuredContent: result };
    },
  );
  return server;
});
