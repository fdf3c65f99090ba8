package preflight

import (
	"context"
	"strings"
)

// wires looks at how this controller reaches etcd and the databases: what others can read
// on the way, and what one machine's end takes along.
func (p *plan) wires(context.Context) error {
	switch etcd := p.Settings.Coordination; {
	case etcd.Embedded:
		p.warn("etcd", "", "it is embedded in a process of this machine, and for this machine alone: while it is away no upgrade can begin, switch or be aborted. For more machines run an etcd of three members and name it in etcd.endpoints")
	case len(etcd.Plaintext) > 0:
		p.warn("etcd", strings.Join(etcd.Plaintext, ","), "plaintext to another machine: anyone who can listen there reads the password and all that is stored: use https:// and etcd.caFile")
	default:
		p.ok("etcd", strings.Join(etcd.Endpoints, ","), "reached by TLS, or on this machine")
	}
	for _, v := range []string{p.dir.From(), p.dir.To()} {
		if far := p.Settings.Plaintext[v]; len(far) > 0 {
			p.warn("server", v, "plaintext to another machine (%s): anyone who can listen there reads the records: add tls=true to the connection string", strings.Join(far, ","))
		}
	}
	return nil
}
