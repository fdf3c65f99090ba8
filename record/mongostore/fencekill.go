package mongostore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
)

// killHolders kills the sessions whose open transactions hold the collection ns
// ("database.collection") and returns how many. Their commits then answer
// NoSuchTransaction: nothing of them was written.
//
// lockInfo names the holders exactly. Where it cannot be had (mongos, missing
// privilege), every transaction that has been holding a collection for longer than one
// attempt is killed; transactions are made to be repeated.
func (n *Namespace) killHolders(ctx context.Context, ns string) (int, error) {
	open, err := n.openTransactions(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	holders, lockErr := n.lockHolders(ctx, ns)
	killed := 0
	for _, txn := range open {
		switch {
		case lockErr == nil && !holders[txn.key()]:
			continue
		case lockErr != nil && (!txn.holdsCollection || txn.openMicros < lockWait.Microseconds()):
			continue
		}
		err := n.admin().RunCommand(ctx, bson.D{
			{Key: "killAllSessionsByPattern", Value: bson.A{bson.D{{Key: "lsid", Value: txn.lsid}}}},
		}).Err()
		if err != nil {
			return killed, fmt.Errorf("kill session: %w", err)
		}
		killed++
		n.log.Info("killed an open transaction that held up a fence",
			zap.String("collection", ns), zap.String("client", txn.client),
			zap.Int64("openMicros", txn.openMicros), zap.Bool("exact", lockErr == nil))
	}
	return killed, nil
}

// openTransaction is a transaction that currentOp shows.
type openTransaction struct {
	lsid            bson.Raw // {id, uid}
	client          string
	openMicros      int64
	holdsCollection bool
}

// key is how lockInfo writes the session.
func (t openTransaction) key() string {
	_, id, _ := t.lsid.Lookup("id").BinaryOK()
	_, uid, _ := t.lsid.Lookup("uid").BinaryOK()
	if len(id) != 16 {
		return ""
	}
	h := hex.EncodeToString(id)
	return fmt.Sprintf("%s-%s-%s-%s-%s, %s", h[:8], h[8:12], h[12:16], h[16:20], h[20:],
		base64.StdEncoding.EncodeToString(uid))
}

func (n *Namespace) openTransactions(ctx context.Context) ([]openTransaction, error) {
	mongos, err := n.isMongos(ctx)
	if err != nil {
		return nil, err
	}
	cursor, err := n.admin().Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{
			{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}, {Key: "localOps", Value: !mongos},
		}}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "transaction.parameters.autocommit", Value: false}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("list open transactions: %w", err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("list open transactions: %w", err)
	}
	var open []openTransaction
	for _, d := range docs {
		lsid, ok := d.Lookup("lsid").DocumentOK()
		if !ok {
			continue
		}
		client, _ := d.Lookup("client").StringValueOK()
		micros, _ := d.Lookup("transaction", "timeOpenMicros").AsInt64OK()
		locks, _ := d.Lookup("locks", "Collection").StringValueOK()
		open = append(open, openTransaction{lsid: lsid, client: client, openMicros: micros, holdsCollection: locks != ""})
	}
	return open, nil
}

// lockHolders returns the sessions that were granted a lock on a collection, each in
// the form of openTransaction.key.
func (n *Namespace) lockHolders(ctx context.Context, ns string) (map[string]bool, error) {
	var reply struct {
		LockInfo []struct {
			Resource string `bson:"resourceId"` // "{4848826274508578515: Collection, 237140256081190611, db.name}"
			Granted  []struct {
				Debug string `bson:"debugInfo"` // "lsid: <uuid>, <uid>, (None), (None)"
			} `bson:"granted"`
		} `bson:"lockInfo"`
	}
	if err := n.admin().RunCommand(ctx, bson.D{{Key: "lockInfo", Value: 1}}).Decode(&reply); err != nil {
		return nil, fmt.Errorf("read locks: %w", err)
	}
	holders := make(map[string]bool)
	for _, l := range reply.LockInfo {
		if !strings.Contains(l.Resource, ": Collection,") || !strings.HasSuffix(l.Resource, ", "+ns+"}") {
			continue
		}
		for _, g := range l.Granted {
			session, ok := strings.CutPrefix(g.Debug, "lsid: ")
			if parts := strings.Split(session, ", "); ok && len(parts) >= 2 {
				holders[parts[0]+", "+parts[1]] = true
			}
		}
	}
	return holders, nil
}
