// What the reference servers on the TypeScript SDKs list and say, whatever the SDK.

import { readFileSync } from 'node:fs';

// A server changes its own lists.
export const surface = JSON.parse(readFileSync(process.env.SURFACE, 'utf8'));

// One red pixel, and an eight samples long silence.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';
const WAV = Buffer.concat([
  Buffer.from('RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00', 'latin1'),
  Buffer.from('\x01\x00\x08\x00data\x08\x00\x00\x00\x80\x80\x80\x80\x80\x80\x80\x80', 'latin1'),
]).toString('base64');

export const words = value => ({ type: 'text', text: value });
export const text = value => ({ content: [words(value)] });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, body) => ({ type: 'resource', resource: { uri, mimeType, text: body } });
export const said = (...blocks) => ({ messages: blocks.map(content => ({ role: 'user', content })) });

// The tools that do nothing but answer.
export const plainTools = {
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
};

export const plainPrompts = {
  test_simple_prompt: () => said(words('This is a simple prompt for testing.')),
  test_prompt_with_arguments: ({ arg1, arg2 }) => said(words(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  test_prompt_with_embedded_resource: ({ resourceUri }) =>
    said(
      embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      words('Please process the embedded resource above.'),
    ),
  test_prompt_with_image: () => said(image, words('Please analyze the image above.')),
};

// What a URI leads to, if anything.
export function read(uri) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (uri === 'test://static-text') return { uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' };
  if (uri === 'test://static-binary') return { uri, mimeType: 'image/png', blob: PNG };
  if (uri === 'test://watched-resource') return { uri, mimeType: 'text/plain', text: 'Watched.' };
  if (id) return { uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
  return undefined;
}

export function complete({ argument }) {
  const values = ['paris', 'park', 'party', 'london'].filter(value => value.startsWith(argument.value));
  return { completion: { values, total: values.length, hasMore: false } };
}

// Takes one out of a list, or puts it in.
export function toggle(list, one) {
  const at = list.findIndex(({ name }) => name === one.name);
  if (at < 0) list.push(one);
  else list.splice(at, 1);
}

// The fields of the two forms.
export const defaults = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};
const options = ['option1', 'option2', 'option3'];
const titled = noun => ['First', 'Second', 'Third'].map((word, at) => ({ const: `value${at + 1}`, title: `${word} ${noun}` }));
export const choices = {
  untitledSingle: { type: 'string', enum: options },
  titledSingle: { type: 'string', oneOf: titled('Option') },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
  titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
};
