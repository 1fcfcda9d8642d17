/** Hearth, through the package's own front door and in its own worker. */

import { Hearth } from "../../web/hearth.js";
import { publish } from "./common.js";

publish(async ({ model }) => {
  const hearth = await Hearth.load(model);
  return async (prompt, newTokens, onToken) => {
    await hearth.reset();
    const answer = hearth.chat(prompt.messages, { temperature: 0, max_tokens: newTokens });
    let text = "";
    for await (const piece of answer) {
      onToken();
      text += piece.text;
    }
    const { usage } = await answer.result;
    if (prompt.tokens && usage.prompt_tokens !== prompt.tokens) {
      throw new Error(`the prompt ${prompt.name} became ${usage.prompt_tokens} tokens, not ${prompt.tokens}`);
    }
    return text;
  };
});
