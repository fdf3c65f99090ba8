// Package databases opens the databases of a configuration, for every process. It is the one place
// that decides when a database may be used: after it has answered and every Check has passed.
// Database and its Client open the database before the first command, so no command can bypass the
// checks.
//
// A database is opened when it is first needed. An unused cluster that is down therefore keeps no
// process from starting. Unreachable databases are retried as long as the caller wants
// (record.ErrUnavailable). Errors that a person must correct, such as a wrong login or a missing
// privilege, are returned at once. If the login comes from files, a changed file takes effect
// without a restart.
//
// The package does not decide which databases are needed: processes do, from the Deployment. Begin
// to read at Set and Database.
package databases
