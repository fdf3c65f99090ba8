package record

// NameCount is the number of uses of a collection name since the server started to count. The count
// starts again when the server restarts. Backends that can count have methods of their own for
// NameCount and NameUser. No interface of this package has them.
type NameCount struct{ Reads, Writes int64 }

// NameUser is a client that was seen using a name.
type NameUser struct {
	Name        string // the name it used
	Application string // the name that the client reports; empty: none
	Driver      string // name and version
	Address     string // without the port
}
