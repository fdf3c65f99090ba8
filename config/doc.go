// Package config reads the YAML file that a controller and a server start with.
//
// Guarantees: the result is complete (defaults filled in, variables resolved, lens
// paths made relative to the working directory) and checked, so that no other package
// asks again whether a value makes sense. Every refusal is one line that names file,
// line, key, value and what is allowed. What may carry a password is a Secret, which
// prints redacted however it is printed, and no error shows one either.
//
// It does not open a database, read a lens or know what a version means. Only cmd and
// tests import it. docs/configuration.md is the reference of the keys.
//
// It is not for users and may change with any version.
package config
