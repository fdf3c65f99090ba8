// Package config reads the YAML file of a controller or a server, checks it, and fills in defaults.
//
// # Guarantees
//
//   - The result is complete. Defaults are filled in and variables are replaced by their values.
//     Paths of lenses, relative to the file in the configuration, are relative to the working
//     directory in the result.
//   - The result is checked, so that no other package checks the values again.
//   - An error is one line with file, line, key, value and the allowed values.
//   - A value that may contain a password is a Secret, which every way of printing redacts. No
//     error shows a password either.
//
// # What this package does not own
//
// This package opens no database, reads no lens, and does not interpret versions. Only programs
// (cmd, internal/program) and tests import it. docs/configuration.md is the reference of the keys.
//
// # Where to begin
//
// Begin with Load and Config in config.go, then read the sections in sections.go.
//
// It is not for users and may change with any version.
package config
