// Package storetest has what tests of mongostore and its parts share: namespaces on real servers,
// connections that lose answers, and records to write.
//
// It is not for users and may change with any version.
package storetest
