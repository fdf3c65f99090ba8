// Package config reads the YAML file of a controller or a server.
//
// # Guarantees
//
//   - The result is complete. Defaults are filled in and variables are replaced by their values. A
//     lens is a file that describes how records change between two versions. The configuration
//     gives its path relative to itself, and the result relative to the working directory.
//   - The result is checked, so that no other package checks the values again.
//   - An error is one line with file, line, key, value and the allowed values.
//   - A value that may contain a password is a Secret, which every way of printing redacts. No
//     error shows a password either.
//
// # What this package does not own
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
