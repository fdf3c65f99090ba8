// Package config reads the YAML file of a controller or a server.
//
// # Guarantees
//
// The result is complete: defaults are filled in, variables are resolved, and lens paths work from
// the working directory. It is also checked, so that no other package checks the values again. A
// refusal is one line with file, line, key, value and the allowed values. A value that may contain
// a password is a Secret, which every way of printing redacts. No error shows a password either.
//
// # What it does not own
//
// This package opens no database, reads no lens, and gives a version no meaning. Only cmd and tests
// import it. docs/configuration.md is the reference of the keys.
//
// # Where to begin
//
// Load and Config in config.go, then the sections in sections.go.
//
// It is not for users and may change with any version.
package config
