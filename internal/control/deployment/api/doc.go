// Package api serves deployments as the ConnectRPC service dbcontroller.v1.DeploymentService. Its
// callers are operators, dashboards, and applications of fixed-name kinds. Such an application
// accesses its database directly, and asks this API when to hold writes and where its data is.
//
// # Guarantees
//
// Each changing call makes one transition of the record (package deployment). Its answer describes
// the effects of the transition in sentences, and with dry_run the effects that it would have. The
// history gets an entry for each call, even if the call changes nothing. Repeating a call has no
// further effect. Errors are one line of text with a code.
//
// # What it does not own
//
// Package access checks the callers. Package upgradestate decides what a transition does. This
// package stores no data of its own.
//
// # Where to begin
//
// Service in service.go, and change in verbs.go, which all changing calls use. Package status describes
// a deployment in answers.
//
// It is not for users and may change with any version.
package api
