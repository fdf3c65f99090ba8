package mongostore

import (
	"dbcontroller.dev/internal/store/mongostore/client"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
)

// What programs use of the parts. They import this package alone.
type (
	// Config locates a namespace.
	Config = conn.Config
	// Clients shares connections among the namespaces of a process.
	Clients = conn.Clients
	// Horizon is the latest cluster time that the clients of a database in this process have seen.
	Horizon = conn.Horizon
	// Client reads and writes managed kinds for a service.
	Client = client.Client
)

// MaxGroupBytes bounds the bytes of one group.
const MaxGroupBytes = recordio.MaxGroupBytes

// NewClients returns Clients for a number of namespaces.
func NewClients(namespaces int) *Clients { return conn.NewClients(namespaces) }

// GuardsName returns the name of the side collection with the guards and tombstones of a fixed-name
// kind. It is in the kind's database.
func GuardsName(kind string) string { return conn.GuardsName(kind) }

// IsUnavailable reports whether an error of any command means that a database could not be reached,
// had no primary, or had no room on its disk. The same command may succeed later. It does not say
// whether a write had an effect; check record.ErrUnknown first.
func IsUnavailable(err error) bool { return conn.IsUnavailable(err) }

// IsLoginRefused reports whether the server refused the login.
func IsLoginRefused(err error) bool { return conn.IsLoginRefused(err) }
