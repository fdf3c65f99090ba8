// Package login checks the passwords of a proxy's clients. The proxy is the server of SCRAM-SHA-1 and
// SCRAM-SHA-256 itself, since a conversation that one cluster took part in means nothing to the next one.
//
// It holds verifiers and no passwords: salt, iteration count and two keys, the same values that MongoDB keeps
// for a user. A verifier can check a password and cannot be used as one.
//
// # Words
//
//   - A User may log in. Its Verifier is read from a file, and read again after a change.
//   - A Conversation is one login of a client, of two or three messages.
//   - A Guard slows down those who guess passwords.
//
// An unknown user gets a conversation, too. It fails at its end as with a wrong password, so a stranger cannot
// find out which users exist.
//
// The package knows neither messages nor connections, and not what a user may do.
package login
