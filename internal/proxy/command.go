package proxy

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/names"
)

// command is a command of a client.
type command struct {
	msg        message.Message
	user       *user // who sent it; nil: the proxy has no users
	verb       string
	database   string
	collection string // empty: it names none

	session     string // id of the logical session, in hexadecimal; empty: none
	number      int64  // txnNumber
	retryable   bool   // it has a txnNumber outside of a transaction
	transaction bool   // it is part of a transaction
	starts      bool   // it is the first one of a transaction
	preference  bson.Raw
	limit       time.Duration // maxTimeMS; 0: none
	unasked     bool          // the client does not wait for a reply
}

// longestBody is the size of a command beside its sequences that a server takes: a document and some room.
const longestBody = 16<<20 + 16<<10

// parse reads the elements of a command that the proxy needs. It refuses a body that is no BSON.
func parse(m message.Message) (c command, err error) {
	c = command{msg: m, database: m.Database, unasked: m.Flags&message.MoreToCome != 0}
	if len(m.Body) > longestBody {
		return c, fmt.Errorf("%w: its body has %d bytes, and servers take %d", message.ErrMalformed, len(m.Body), longestBody)
	}
	first, err := m.Body.IndexErr(0)
	if err != nil {
		return c, fmt.Errorf("%w: no command", message.ErrMalformed)
	}
	c.verb = first.Key()
	// Names are looked for in pipelines, which may hold others.
	if _, err := m.Body.LookupErr("pipeline"); err == nil || c.verb == "explain" {
		if err := rawdoc.Validate(bson.Raw(m.Body)); err != nil {
			return c, fmt.Errorf("%w: %w", message.ErrMalformed, err)
		}
	}
	if names.Named(c.verb) {
		c.collection, _ = first.Value().StringValueOK()
	}
	// Without a list of all elements: there can be very many.
	for rest := m.Body[4 : len(m.Body)-1]; len(rest) > 0; {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return c, fmt.Errorf("%w: no command", message.ErrMalformed)
		}
		rest = after
		v := e.Value()
		switch e.Key() {
		case "$db":
			c.database, _ = v.StringValueOK()
		case "collection":
			if c.verb == "getMore" {
				c.collection, _ = v.StringValueOK()
			}
		case "lsid":
			if doc, ok := v.DocumentOK(); ok {
				c.session, _ = sessionOf(doc)
			}
		case "txnNumber":
			c.number, c.retryable = v.AsInt64OK()
		case "maxTimeMS":
			if ms, ok := v.AsInt64OK(); ok && ms > 0 && ms <= math.MaxInt32 && c.verb != "getMore" {
				c.limit = time.Duration(ms) * time.Millisecond
			}
		case "autocommit":
			auto, ok := v.BooleanOK()
			c.transaction = ok && !auto
		case "startTransaction":
			c.starts, _ = v.BooleanOK()
		case "$readPreference":
			if doc, ok := v.DocumentOK(); ok {
				c.preference = bson.Raw(doc)
			}
		case "explain":
			if doc, ok := v.DocumentOK(); ok && c.verb == "explain" {
				if inner, err := doc.IndexErr(0); err == nil {
					c.collection, _ = inner.Value().StringValueOK()
				}
			}
		}
	}
	c.retryable = c.retryable && !c.transaction
	return c, nil
}

// sessionOf returns the id of a session in hexadecimal, from its document.
func sessionOf(lsid bsoncore.Document) (string, bool) {
	v, err := lsid.LookupErr("id")
	if err != nil {
		return "", false
	}
	_, id, ok := v.BinaryOK()
	return hex.EncodeToString(id), ok
}

// logical is a logical session of a user. Users may choose the same id, and have different sessions then.
type logical struct {
	user *user
	id   string
}

// logical returns the session of a command.
func (c command) logical() logical { return logical{c.user, c.session} }

// explained returns the command that an explain is about.
func (c command) explained() (command, bool) {
	first, err := c.msg.Body.IndexErr(0)
	if err != nil || c.verb != "explain" {
		return command{}, false
	}
	body, ok := first.Value().DocumentOK()
	if !ok {
		return command{}, false
	}
	inner, err := body.IndexErr(0)
	if err != nil {
		return command{}, false
	}
	return command{msg: message.Message{Body: body}, verb: inner.Key(), database: c.database}, true
}

// writes are the commands that change data or collections.
var writes = map[string]bool{
	"insert": true, "update": true, "delete": true, "findAndModify": true, "findandmodify": true, "bulkWrite": true,
	"create": true, "createIndexes": true, "drop": true, "dropIndexes": true, "deleteIndexes": true, "collMod": true,
	"dropDatabase": true, "renameCollection": true,
}

// isWrite reports whether a command may change something.
func (c command) isWrite() bool {
	return writes[c.verb] || c.verb == "aggregate" && names.Writes(c.msg.Body)
}

// bypasses reports whether a fence of class validator lets a command pass, with all that it changes.
func (c command) bypasses() bool {
	if v, err := c.msg.Body.LookupErr("bypassDocumentValidation"); err == nil {
		if bypass, ok := v.BooleanOK(); !ok || bypass {
			return true
		}
	}
	switch c.verb {
	// An index that is lacking is no lost write, and drivers make indexes when they start.
	case "insert", "update", "aggregate", "create", "createIndexes":
		return false
	case "findAndModify", "findandmodify":
		v, err := c.msg.Body.LookupErr("remove")
		removes, ok := v.BooleanOK()
		return err == nil && (!ok || removes)
	}
	return true
}

// passes reports whether a fence of class validator may have let a command pass that came too late, or a
// part of it. An update that finds or changes nothing passes, too: it may have to find something at the new
// place.
func (c command) passes(reply bsoncore.Document) bool {
	switch {
	case c.bypasses():
		return true
	case c.verb == "insert", c.verb == "create", c.verb == "createIndexes":
		return false
	case c.verb != "update":
		return true
	}
	statements, err := c.sequence("updates")
	if err != nil || slices.ContainsFunc(statements, ofMany) {
		return true
	}
	changed := number(reply, "nModified") + int64(len(renumbered(reply, "upserted", make([]int, len(statements)))))
	return changed+int64(len(writeErrors(reply))) < int64(len(statements))
}

// ofMany reports whether a statement of an update may change many documents.
func ofMany(statement bsoncore.Document) bool {
	v, err := statement.LookupErr("multi")
	if err != nil {
		return false
	}
	many, ok := v.BooleanOK()
	return !ok || many
}

// refused are commands that a proxy does not serve, each with advice.
var refused = map[string]string{
	"mapReduce":        "use an aggregation",
	"mapreduce":        "use an aggregation",
	"applyOps":         "use ordinary writes",
	"renameCollection": "rename it in the database itself, while no upgrade runs",
	"dropDatabase":     "drop it in the database itself, while no upgrade runs",
	"shutdown":         "send it to the server itself",
	"fsync":            "send it to the server itself",
	"replSetGetStatus": "send it to a member of the replica set",
	"movePrimary":      "send it to a router of the cluster",
	// A conversation about a login would log in a connection that other clients use afterwards.
	"saslStart":    noUsers,
	"saslContinue": noUsers,
	"authenticate": noUsers,
	"logout":       noUsers,
}

const noUsers = "it has no users; name them in its configuration, or leave the login out of the connection string"

// sequences are the lists that drivers send outside of the body. A server takes any element from there, also
// a pipeline, whose names the proxy would not see.
var sequences = []string{"documents", "updates", "deletes", "ops", "nsInfo"}

// refuses returns why a command is not served; empty: it is.
func (p *Proxy) refuses(c command) string {
	if why, ok := refused[c.verb]; ok && !p.apart(c) {
		return why
	}
	for _, s := range c.msg.Sequences {
		if !slices.Contains(sequences, s.Name) {
			return s.Name + " must be in the body of the command"
		}
	}
	d := p.deployment(c)
	if inner, ok := c.explained(); ok {
		if d == nil || !names.Named(inner.verb) {
			if why := p.mentions(inner); why != "" {
				return why
			}
		}
	}
	if d == nil {
		if on := p.views[c.database+"."+c.collection]; on != "" {
			return "it is a view that reads " + on + ", which moves: drop the view, and query the collection"
		}
		if why := p.mentions(c); why != "" {
			return why
		}
	}
	// Its time is of one place, and the data of that time may be at another one, or not yet whole here.
	if level, err := c.msg.Body.LookupErr("readConcern", "level"); err == nil && !c.transaction && p.deployment(c) != nil {
		if text, _ := level.StringValueOK(); text == "snapshot" {
			return "a snapshot read cannot follow a collection that moves: use a transaction"
		}
	}
	switch c.verb {
	case "aggregate":
		// It would end at the first switch without a word.
		if c.collection == "" && names.Watches(c.msg.Body) && (c.database == "admin" && len(p.deployed) > 0 || p.moves(c.database)) {
			return "a change stream of a whole database or cluster cannot follow a collection that moves: watch the collections"
		}
	case "create", "collMod":
		v, err := c.msg.Body.LookupErr("viewOn")
		if on, ok := v.StringValueOK(); err == nil && ok && p.deployment(command{database: c.database, collection: on}) != nil {
			return "a view does not move with its collection: make it in the database itself, in both versions"
		}
	}
	return ""
}

// apart reports whether a command that is refused otherwise has nothing to do with collections that move.
func (p *Proxy) apart(c command) bool {
	switch c.verb {
	case "dropDatabase":
		return !p.moves(c.database)
	case "renameCollection":
		for _, key := range []string{c.verb, "to"} {
			ns, _ := text(c.msg.Body, key)
			database, collection, ok := strings.Cut(ns, ".")
			if !ok || p.deployment(command{database: database, collection: collection}) != nil {
				return false
			}
		}
		return true
	}
	return false
}

// mentions returns why a command that does not move itself cannot name a collection that does.
func (p *Proxy) mentions(c command) string {
	first, err := c.msg.Body.IndexErr(0)
	if err != nil {
		return ""
	}
	// An unknown command about a collection, by the form that all such commands have.
	if name, ok := first.Value().StringValueOK(); ok && !names.Named(c.verb) && p.deployment(command{database: c.database, collection: name}) != nil {
		return "it does not know this command, and " + name + " moves"
	}
	// Some name it with its database.
	if ns, ok := first.Value().StringValueOK(); ok {
		if database, name, ok := strings.Cut(ns, "."); ok && p.deployment(command{database: database, collection: name}) != nil {
			return "it does not know this command, and " + ns + " moves"
		}
	}
	for _, s := range names.Stages(c.database, c.msg.Body) {
		if p.deployment(command{database: s.Database, collection: s.Collection}) != nil {
			return (&names.StrayError{Database: s.Database, Collection: s.Collection, Stage: s.Name}).Error()
		}
		if on := p.views[s.Database+"."+s.Collection]; on != "" {
			return s.Name + " names a view that reads " + on + ", which moves"
		}
	}
	return ""
}

// moves reports whether a database of the application has collections that move.
func (p *Proxy) moves(database string) bool {
	for _, d := range p.deployed {
		if d.cfg.Database == database {
			return true
		}
	}
	return false
}

// sequence returns the documents of a list that a command has outside or inside of its body.
func (c command) sequence(name string) ([]bsoncore.Document, error) {
	for _, s := range c.msg.Sequences {
		if s.Name == name {
			return documents(s.Docs)
		}
	}
	v, err := c.msg.Body.LookupErr(name)
	if err != nil {
		return nil, nil
	}
	list, ok := v.ArrayOK()
	if !ok {
		return nil, fmt.Errorf("%s is no list", name)
	}
	values, err := list.Values()
	if err != nil {
		return nil, err
	}
	out := make([]bsoncore.Document, len(values))
	for i, v := range values {
		if out[i], ok = v.DocumentOK(); !ok {
			return nil, fmt.Errorf("%s has an entry that is no document", name)
		}
	}
	return out, nil
}

func documents(b []byte) (out []bsoncore.Document, err error) {
	for len(b) > 0 {
		doc, rest, ok := bsoncore.ReadDocument(b)
		if !ok {
			return nil, message.ErrMalformed
		}
		out, b = append(out, doc), rest
	}
	return out, nil
}

// inherited are the elements that the proxy's own messages must have like those of the client: the session,
// and the version of the API that it declared.
var inherited = []string{"lsid", "apiVersion", "apiStrict", "apiDeprecationErrors"}

// inherit appends the inherited elements of a command.
func (c command) inherit(b *bsoncore.DocumentBuilder) *bsoncore.DocumentBuilder {
	for _, key := range inherited {
		if v, err := c.msg.Body.LookupErr(key); err == nil {
			b.AppendValue(key, v)
		}
	}
	return b
}
