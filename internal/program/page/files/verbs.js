// Stub until the verbs are there.
export const buttons = () => [];
export const resolver = () => null;
export const waive = () => {};
export const waiveKind = () => {};
