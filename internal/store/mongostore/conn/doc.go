// Package conn is the connection of a namespace to MongoDB, which all parts of mongostore share. It
// has the driver's client, sessions and transactions, the classes of errors and their retries, and
// what several parts read: collections by name, marks, cluster times. It knows nothing of fences,
// provisioning or records.
//
// It is not for users and may change with any version.
package conn
