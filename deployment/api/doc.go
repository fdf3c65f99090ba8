// Package api serves deployments as the ConnectRPC service
// dbcontroller.v1.DeploymentService: to operators, dashboards and applications of fixed-name
// kinds.
//
// Each call that changes something makes one transition of the record (package deployment),
// answers what that did, or would do, in sentences for people, and is an entry of the
// history, also when it changes nothing. Errors are one line and have a code. Whatever is
// asked for twice is done once.
//
// It does not check who calls (package access), does not decide what a transition does
// (upgradestate), and stores nothing by itself.
//
// It is not for users and may change with any version.
package api
