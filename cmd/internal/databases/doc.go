// Package databases opens the databases of a configuration. Every process does it here, so
// that there is one place that decides when a database may be used: it has answered, and
// every check has passed. Nothing reaches a database that was not opened so, for Namespace
// and Client are not the backend itself but open it first.
//
// A database is opened when it is needed, not when it is configured: an outage of a cluster
// that nobody uses keeps nobody from starting. What cannot be reached, or has no primary, is
// tried again for as long as the caller wants (record.ErrUnavailable); what a person has to
// correct, a login, a privilege, a server that cannot be used, is an error at once.
//
// It does not decide which databases are needed: processes do, by the Deployment.
package databases
