package record

// NameCount is how often a name was used since the server counts, which begins anew when it does.
type NameCount struct{ Reads, Writes int64 }

// NameUser is a client that was met while it used a name.
type NameUser struct {
	Name        string // that it used
	Application string // as it calls itself; empty: it does not
	Driver      string // name and version
	Address     string // without the port
}
