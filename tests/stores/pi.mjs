// pi's own SessionManager, asked from a test: `node pi.mjs` with JSON on stdin, {entry, steps}; JSON on stdout.
// A step opens a file anew, does what it is told, and gives the context that pi would send.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const asked = JSON.parse(readFileSync(0, "utf8"));
const { SessionManager } = await import(pathToFileURL(asked.entry).href);

function take({ file, does = [] }) {
  const manager = SessionManager.open(file);
  for (const [verb, ...rest] of does) {
    if (verb === "fork") manager.createBranchedSession(...rest);
    else manager[verb](...rest);
  }
  return {
    id: manager.getSessionId(),
    name: manager.getSessionName() ?? null,
    leaf: manager.getLeafId(),
    ids: manager.getEntries().map((entry) => entry.id),
    file: manager.getSessionFile(),
    messages: manager.buildSessionContext().messages,
  };
}

console.log(JSON.stringify(asked.steps.map(take)));
