// The ways in which the server or the connection refuses an answer, and which of them are worth another try.

const GONE = [502, 503, 504];  // statuses of a server that is away

export class Overloaded extends Error {}
export class Gone extends Error {}  // the server: another one, or the next, goes on

// To be thrown in place of an error that a browser gave; it calls a broken connection a TypeError.
export function broken(error) {
  throw error instanceof TypeError ? new Gone(error.message) : error;
}

export function failure(body, status) {
  const error = body?.error;
  if (!error) return null;
  const sentence = error.message ?? error, kind = error.code ?? body.error_type;
  const isGone = GONE.includes(status) || ["service_unavailable", "healthcheck"].includes(kind) || sentence === "unhealthy";
  const isFull = status === 429 || sentence === "Model is overloaded";
  return new (isGone ? Gone : isFull ? Overloaded : Error)(sentence);
}

export async function refusal(response) {
  const text = await response.text().catch(broken);
  try {
    const told = failure(JSON.parse(text), response.status);
    if (told) return told;
  } catch { /* the server also answers in plain text */ }
  const kind = GONE.includes(response.status) ? Gone : Error;
  return new kind(text || (response.status === 401 ? "The API key is missing or wrong" : `Status ${response.status}`));
}
