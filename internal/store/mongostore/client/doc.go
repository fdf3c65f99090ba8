// Package client reads and writes managed kinds for a service. Client explains how recent its reads
// are, and what a lost answer of a write means.
//
// It is not for users and may change with any version.
package client
