package proxy

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// A router gives a recoveryToken with the replies of a transaction. A driver sends the latest one with the
// commit and the abort, also if it lost the router and asks another one. The token of a proxy names the
// cluster, so that another proxy asks there first.
const recoveryToken = "recoveryToken"

// recoverable returns a reply with the token of a transaction. Routers behind the proxy give their own.
func (t *transaction) recoverable(reply bsoncore.Document) (bsoncore.Document, error) {
	if _, err := reply.LookupErr(recoveryToken); err == nil || !succeeded(reply) {
		return reply, nil
	}
	database := ""
	if t.deployed != nil {
		database = t.deployed.cfg.Database
	}
	token := bsoncore.NewDocumentBuilder().AppendString("database", database).AppendString("version", t.at.version).Build()
	return with(reply, recoveryToken, bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: token})
}

// ofServer returns the end of a transaction for a server. Only routers know tokens, and only their own.
func ofServer(m message.Message, sharded bool) (message.Message, error) {
	if sharded {
		return m, nil
	}
	var err error
	m.Body, err = without(m.Body, recoveryToken)
	return m, err
}

// likely returns all clusters, and those first that the token of a command names. The others follow, because
// the other proxy may have another configuration.
func (p *Proxy) likely(c command) []*upstream.Cluster {
	all := p.clusters()
	database, err1 := c.msg.Body.LookupErr(recoveryToken, "database")
	version, err2 := c.msg.Body.LookupErr(recoveryToken, "version")
	db, ok1 := database.StringValueOK()
	v, ok2 := version.StringValueOK()
	if err1 != nil || err2 != nil || !ok1 || !ok2 || db == "" { // home is the first one
		return all
	}
	var named []*upstream.Cluster
	for _, d := range p.deployed {
		if uri, ok := d.cfg.URIs[v]; ok && d.cfg.Database == db {
			p.mu.Lock()
			cluster := p.byURI[uri]
			p.mu.Unlock()
			if cluster != nil && !slices.Contains(named, cluster) {
				named = append(named, cluster)
			}
		}
	}
	return append(named, slices.DeleteFunc(all, func(c *upstream.Cluster) bool { return slices.Contains(named, c) })...)
}
