// Package spectest runs the drivers' specification tests against a server or a proxy, and compares the
// results. The tests are those that the module of the MongoDB Go driver carries with it: JSON files, and the
// program that runs them. It is not for users and may change with any version.
package spectest
