package proxy

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// Each cluster has a clock of its own. A time of one cluster means nothing in another one: a server there
// refuses it, or waits for it in vain. A driver keeps the greatest time that it ever saw, from whichever
// cluster and through whichever proxy, so a proxy cannot know the cluster of the time in a command. So before
// several clusters it removes the times, and sends reads that must come after a time to the primary. The
// primary has everything that was acknowledged, also before a switch.

// fit removes the times from a command. It may change the wanted server.
func (p *Proxy) fit(want *upstream.Want, m message.Message) (message.Message, error) {
	if len(p.clusters()) < 2 {
		return m, nil
	}
	var err error
	if m.Body, err = without(m.Body, "$clusterTime"); err != nil {
		return m, err
	}
	concern, err := m.Body.LookupErr("readConcern")
	if err != nil {
		return m, nil
	}
	doc, ok := concern.DocumentOK()
	if !ok {
		return m, nil
	}
	if _, err := doc.LookupErr("afterClusterTime"); err != nil {
		return m, nil
	}
	if doc, err = without(doc, "afterClusterTime"); err != nil {
		return m, err
	}
	drop := []string{"readConcern"}
	if want.At == "" {
		*want = upstream.Want{}
		drop = append(drop, "$readPreference")
	}
	if m.Body, err = without(m.Body, drop...); err != nil {
		return m, err
	}
	m.Body, err = with(m.Body, "readConcern", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc})
	return m, err
}

// untimed removes the signed time from a reply, in place: other clusters refuse the signature.
func (p *Proxy) untimed(reply bsoncore.Document) (bsoncore.Document, error) {
	if len(p.clusters()) < 2 {
		return reply, nil
	}
	return cut(reply, "$clusterTime")
}
