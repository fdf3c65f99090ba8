package mongostore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/record"
)

// Time limits of Check. A person waits for the answer, and first wants to know whether a server is
// there.
const (
	checkLimit = 15 * time.Second
	helloLimit = 5 * time.Second
)

// Check returns an error if this server cannot serve a namespace: no replica set, no change
// streams, or missing privileges. It tests privileges by using them on scratch collections, because
// roles combine in more ways than a list could cover. A missing privilege to end transactions is
// only logged.
func (n *Namespace) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if err := n.checkServer(ctx); err != nil {
		return err
	}
	if err := n.checkChangeStream(ctx); err != nil {
		return err
	}
	// Nothing works without this privilege. The scratch collections below would hide which one is missing.
	if _, err := n.CollectionNamed(ctx, conn.MarksCollection); err != nil {
		return fmt.Errorf("check %s: %w", n.Location(), n.reachable(err))
	}
	if err := n.checkPrivileges(ctx); err != nil {
		return fmt.Errorf("check %s: %w", n.Location(), n.reachable(err))
	}
	// A fence works without this privilege, only slower: never fail for it.
	n.checkKill(ctx)
	return nil
}

func (n *Namespace) checkServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloLimit)
	defer cancel()
	hello, err := n.Hello(ctx)
	if err != nil {
		return fmt.Errorf("check %s: %w", n.Location(), n.reachable(err))
	}
	// A replica set has a name, and a router identifies itself by a message.
	set, _ := hello.Lookup("setName").StringValueOK()
	msg, _ := hello.Lookup("msg").StringValueOK()
	if set == "" && msg != "isdbgrid" {
		return &record.UnsupportedError{
			What: "server at " + n.Location(),
			Reason: "it is a standalone server, without change streams and transactions; " +
				"start mongod with --replSet rs0, then run rs.initiate() once (one node is enough)",
		}
	}
	return nil
}

// reachable reduces the driver's report of a failed server selection, which covers the whole
// topology, to one line. It marks errors that waiting may cure as record.ErrUnavailable.
func (n *Namespace) reachable(err error) error { return conn.AsUnavailable(err, n.OneLine(err)) }

func (n *Namespace) checkChangeStream(ctx context.Context) error {
	raw, err := n.DB.RunCommand(ctx, bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{{Key: "showExpandedEvents", Value: true}}}}}},
		{Key: "cursor", Value: bson.D{}},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
	}).Raw()
	switch {
	case conn.HasCode(err, conn.CodeUnauthorized):
		return fmt.Errorf("check %s: %w", n.Location(), missing("changeStream and find on the database", "read", n.Name, err))
	// A server that is busy or starting may still have change streams.
	case err != nil && conn.WorthRepeating(err):
		return fmt.Errorf("check %s: open change stream: %w", n.Location(), n.reachable(err))
	case err != nil:
		return &record.UnsupportedError{What: "server at " + n.Location(), Reason: "cannot open change streams: " + err.Error()}
	}
	// Close the cursor now. An idle cursor costs the server resources until it times out.
	if id, ok := rawdoc.Lookup(raw, "cursor", "id").AsInt64OK(); ok && id != 0 {
		if err := n.DB.RunCommand(ctx, bson.D{{Key: "killCursors", Value: "$cmd.aggregate"}, {Key: "cursors", Value: bson.A{id}}}).Err(); err != nil {
			n.Log.Debug("cannot close the change stream of a check", zap.Error(err))
		}
	}
	return nil
}

// checkPrivileges runs the operations of provisioning and fencing on a scratch collection.
func (n *Namespace) checkPrivileges(ctx context.Context) error {
	c, done, err := n.Scratch(ctx)
	if err != nil {
		return refusedFor(err, "createCollection on the database", "dbAdmin", n.Name)
	}
	defer done()
	steps := []struct {
		privilege, role string
		do              func() error
	}{
		{"insert on the database", "readWrite", func() error {
			return n.DB.RunCommand(ctx, bson.D{{Key: "insert", Value: c.Name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}}}}}).Err()
		}},
		{"createIndex on the database", "readWrite", func() error {
			return n.DB.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: c.Name}, {Key: "indexes", Value: bson.A{
				bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a_1"}},
			}}}).Err()
		}},
		{"collMod on the database", "dbAdmin", func() error {
			return n.SetValidator(ctx, record.Token{Name: c.Name}, fences.Restoration{})
		}},
		{"renameCollectionSameDB on the database", "readWrite", func() error {
			return n.RenameScratch(ctx, c.Name, c.Name+".n1")
		}},
		{"dropCollection on the database", "readWrite", func() error {
			return n.DB.RunCommand(ctx, bson.D{{Key: "drop", Value: c.Name + ".n1"}}).Err()
		}},
	}
	for _, step := range steps {
		if err := fences.OnScratch(ctx, step.do); err != nil {
			return refusedFor(err, step.privilege, step.role, n.Name)
		}
	}
	// Privileges that only a later stage of an upgrade needs are looked up, not tried. Without this
	// check the upgrade would fail halfway.
	lacks, err := n.lacking(ctx)
	if err != nil {
		return fmt.Errorf("ask for privileges: %w", err)
	}
	if len(lacks) > 0 {
		return &conn.PrivilegeError{Text: fmt.Sprintf("%v (%s on the database): grant the role that 'dbcontroller roles' prints, or readWrite and dbAdmin on %s",
			conn.ErrNoPrivilege, strings.Join(lacks, ", "), n.Name)}
	}
	return nil
}

// checkKill tries the commands that end open transactions at a fence. Without the privilege a fence
// waits for them, at most a minute. That deserves a warning, not an error.
func (n *Namespace) checkKill(ctx context.Context) {
	if n.Quiet {
		return
	}
	_, err := n.OpenTransactions(ctx)
	if err == nil {
		// The pattern names a session that does not exist, so the test ends nobody's transaction.
		err = n.Admin().RunCommand(ctx, bson.D{{Key: "killAllSessionsByPattern", Value: bson.A{bson.D{{Key: "lsid", Value: bson.D{
			{Key: "id", Value: fences.OtherUUID()}, {Key: "uid", Value: bson.Binary{Data: make([]byte, 32)}},
		}}}}}}).Err()
	}
	if err != nil {
		n.Log.Warn("a fence cannot end open transactions and waits for them; "+
			"grant inprog and killAnySession on the cluster (the role from 'dbcontroller roles' has them)",
			zap.String("location", n.Location()), zap.Error(err))
	}
}

func refusedFor(err error, privilege, role, database string) error {
	if conn.HasCode(err, conn.CodeUnauthorized) {
		return missing(privilege, role, database, err)
	}
	return err
}

func missing(privilege, role, database string, err error) error {
	return &conn.PrivilegeError{Text: fmt.Sprintf("%v (%s): grant the role %s on %s", conn.ErrNoPrivilege, privilege, role, database), Err: err}
}
