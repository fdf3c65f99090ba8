package access

// Role is what an identity may do.
type Role string

const (
	// Anyone may call without saying who it is: probes.
	Anyone Role = "anyone"
	// Application registers itself, asks where the data is and acknowledges holds; at a
	// server it is a client of the service.
	Application Role = "application"
	// Viewer sees everything of a deployment, and changes nothing.
	Viewer Role = "viewer"
	// Operator may do everything.
	Operator Role = "operator"
)

// Roles are those that a configuration can give, the weakest first.
var Roles = []Role{Application, Viewer, Operator}

// Covers reports whether a role is enough where least is wanted. A viewer is no
// application: a registration can hold up a switch.
func (r Role) Covers(least Role) bool {
	return least == Anyone || r == least || r == Operator
}
