package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Survey collects facts about the server and the user, without changing anything. Facts that the
// privileges hide stay empty.
func (n *Namespace) Survey(ctx context.Context) (record.Survey, error) {
	s := record.Survey{MaxDocument: wire.MaxDocument}
	if err := n.checkServer(ctx); err != nil { // a plan that only reads does not call Check
		return s, err
	}
	fail := func(err error) (record.Survey, error) {
		return s, fmt.Errorf("survey %s: %w", n.Location(), n.reachable(err))
	}
	build, err := n.Admin().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Raw()
	if err != nil {
		return fail(err)
	}
	s.Server, _ = build.Lookup("version").StringValueOK()
	if s.Mongos, err = n.IsMongos(ctx); err != nil {
		return fail(err)
	}
	if s.UUIDs, err = n.Checks.Ask(ctx, struct{}{}); err != nil {
		return fail(err)
	}
	// Optional, because it needs another privilege.
	raw, err := n.Admin().RunCommand(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: "featureCompatibilityVersion", Value: 1}}).Raw()
	if err == nil {
		s.Feature, _ = rawdoc.Lookup(raw, "featureCompatibilityVersion", "version").StringValueOK()
	}
	s.Text = textOf(s)
	// Optional, because it needs another privilege.
	if raw, err = n.DB.RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Raw(); err == nil {
		var used int64
		s.DiskTotal, _ = raw.Lookup("fsTotalSize").AsInt64OK()
		used, _ = raw.Lookup("fsUsedSize").AsInt64OK()
		s.DiskFree = s.DiskTotal - used
	}
	if s.Oplog, err = n.oplogWindow(ctx); err != nil {
		s.OplogProblem = err.Error()
	}
	if s.Views, err = n.Views(ctx); err != nil {
		return fail(err)
	}
	return s, n.surveyUser(ctx, &s)
}

func textOf(s record.Survey) string {
	kind, feature, uuids := "replica set", s.Feature, ""
	if s.Mongos {
		kind = "sharded cluster"
	}
	if feature == "" {
		feature = "unknown (grant clusterMonitor on admin)"
	}
	if s.UUIDs {
		uuids = ", collection UUIDs are checked"
	}
	return fmt.Sprintf("MongoDB %s, %s, feature compatibility %s, change streams and transactions%s", s.Server, kind, feature, uuids)
}

// oplogWindow returns the time between the first and the last entry of the oplog. If the oplog may
// still grow, it returns the expected window at full size.
func (n *Namespace) oplogWindow(ctx context.Context) (time.Duration, error) {
	if mongos, err := n.IsMongos(ctx); err != nil || mongos {
		return 0, errors.Join(err, errors.New("each shard has its own oplog: run rs.printReplicationInfo() there"))
	}
	// Read through the local database, which only some users may.
	oplog := n.Mongo.Database("local").Collection("oplog.rs")
	at := func(order int) (bson.Timestamp, error) {
		// The oldest or newest entry in natural order needs no index.
		raw, err := oplog.Database().RunCommand(ctx, bson.D{
			{Key: "find", Value: oplog.Name()}, {Key: "sort", Value: bson.D{{Key: "$natural", Value: order}}},
			{Key: "limit", Value: 1}, {Key: "singleBatch", Value: true}, {Key: "projection", Value: bson.D{{Key: "ts", Value: 1}}},
		}).Raw()
		var ts bson.Timestamp
		if err != nil {
			return ts, fmt.Errorf("the oplog cannot be read: %w", withOplogPrivilege(err))
		}
		ts.T, ts.I, _ = rawdoc.Lookup(raw, "cursor", "firstBatch", "0", "ts").TimestampOK()
		return ts, nil
	}
	first, err := at(1)
	if err != nil {
		return 0, err
	}
	last, err := at(-1)
	if err != nil {
		return 0, err
	}
	window := time.Duration(last.T-first.T) * time.Second
	stats, err := oplog.Database().RunCommand(ctx, bson.D{{Key: "collStats", Value: oplog.Name()}}).Raw()
	if err != nil {
		return window, nil //nolint:nilerr // what was measured is the least that it is
	}
	size, _ := stats.Lookup("size").AsInt64OK()
	// A full oplog keeps its window; a growing one will have a longer one.
	most, _ := stats.Lookup("maxSize").AsInt64OK()
	if size > 0 && most > size {
		window = time.Duration(float64(window) * float64(most) / float64(size))
	}
	return window, nil
}

func withOplogPrivilege(err error) error {
	if conn.HasCode(err, conn.CodeUnauthorized) {
		return &conn.PrivilegeError{Text: conn.ErrNoPrivilege.Error() + ": grant clusterMonitor on admin", Err: err}
	}
	return err
}

// surveyUser notes the actions that the user may run on the cluster, and whether the user may stop
// moves of chunks of the database.
func (n *Namespace) surveyUser(ctx context.Context, s *record.Survey) error {
	var status struct {
		Info struct {
			Users      []bson.Raw `bson:"authenticatedUsers"`
			Privileges []struct {
				Resource struct {
					Cluster bool    `bson:"cluster"`
					Any     bool    `bson:"anyResource"`
					DB      *string `bson:"db"`
				} `bson:"resource"`
				Actions []string `bson:"actions"`
			} `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err := conn.Decode(n.Admin().RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}), &status)
	if err != nil {
		return fmt.Errorf("survey %s: ask for privileges: %w", n.Location(), n.reachable(err))
	}
	s.Users, s.Actions = len(status.Info.Users) > 0, map[string]bool{}
	for _, p := range status.Info.Privileges {
		// Check checks the other privileges on databases.
		here := p.Resource.DB != nil && (*p.Resource.DB == "" || *p.Resource.DB == n.Name)
		for _, a := range p.Actions {
			if p.Resource.Cluster || p.Resource.Any || here && a == actionMoveChunk {
				s.Actions[a] = true
			}
		}
	}
	return nil
}

// IsPrivilege reports whether an error of this package means that the user lacks a privilege.
func IsPrivilege(err error) bool {
	var command mongo.CommandError
	return errors.Is(err, conn.ErrNoPrivilege) || errors.As(err, &command) && command.Code == conn.CodeUnauthorized
}
