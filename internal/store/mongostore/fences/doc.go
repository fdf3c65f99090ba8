// Package fences takes collections of MongoDB away from their writers, and gives them back. Each
// class of fence has a file that begins with "fence". The package also keeps the marks of ownership
// (marker.go), tries what the server can do (selftest.go), and finds what a switch has to wait for.
//
// It is not for users and may change with any version.
package fences
