// Compiles a handler: node build.mjs receipt.js ../../handlers/receipt_js.wasm
import { componentize } from "@bytecodealliance/componentize-js";
import { existsSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const [source, target] = process.argv.slice(2);
if (!source || !target) {
  console.error("usage: node build.mjs SOURCE.js TARGET.wasm");
  process.exit(2);
}
// The interface of handlers: in a folder beside this file, or where Hourhand's source has it.
const wit = [process.env.HOURHAND_WIT, join(here, "wit"), join(here, "../../wit")];

const { component } = await componentize({
  sourcePath: resolve(source),
  witPath: wit.find((path) => path && existsSync(path)),
  worldName: "job-handler",
});
// Under another name first: a runner that watches the folder never sees half of it.
const staged = join(dirname(resolve(target)), `.${basename(target)}.staged`);
await writeFile(staged, component);
await rename(staged, target);
