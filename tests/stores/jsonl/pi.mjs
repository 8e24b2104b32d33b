// pi's own SessionManager, asked from a test: `node pi.mjs ENTRY`, a JSON line of steps on stdin, one of answers on
// stdout. A step opens a file anew, does what it is told, and gives the context that pi would send.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { SessionManager } = await import(pathToFileURL(process.argv[2]).href);

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

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(JSON.parse(line).map(take)));
}
