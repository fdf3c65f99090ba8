package conn

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
)

// wholeServer stands for the lock of the whole server. It waits for every open transaction on any
// collection.
const wholeServer = "the whole server"

// killHolders kills the sessions whose open transactions hold the collection ns, and returns how
// many. ns is "database.collection" or wholeServer. Commits of the killed transactions fail with
// NoSuchTransaction, and nothing of them was written.
//
// lockInfo names the holders exactly. It is missing through mongos and without the privilege. Then
// killHolders kills each transaction that has held a collection for longer than one attempt;
// clients retry transactions. For wholeServer it does the same, because younger transactions
// blocked nobody.
func (n *Conn) killHolders(ctx context.Context, ns string) (int, error) {
	open, err := n.OpenTransactions(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	var holders map[string]bool // nil: unknown
	if ns != wholeServer {
		if holders, err = n.lockHolders(ctx, ns); err != nil {
			n.Log.Debug("cannot identify the holders of a lock exactly", zap.Error(err))
		}
	}
	return n.KillTransactions(ctx, open, "held up a fence of "+ns, func(txn OpenTransaction) bool {
		if holders != nil {
			return holders[txn.key()]
		}
		// A younger transaction cannot have blocked the whole attempt.
		return txn.HoldsCollection && txn.OpenMicros >= LockWait.Microseconds()
	})
}

// KillExactHolders is killHolders for work that can wait. Unless lockInfo names the holders it
// kills nothing, and the server ends them after a minute.
func (n *Conn) KillExactHolders(ctx context.Context, ns string) (int, error) {
	open, err := n.OpenTransactions(ctx)
	if err != nil || len(open) == 0 || ns == wholeServer {
		return 0, err
	}
	holders, err := n.lockHolders(ctx, ns)
	if err != nil {
		return 0, err
	}
	return n.KillTransactions(ctx, open, "held up the end of "+ns, func(txn OpenTransaction) bool { return holders[txn.key()] })
}

// abandonedAfter is the age from which an idle transaction of this program belongs to a process
// that has ended. It equals the lease of a controller. The server would keep the transaction and
// its locks for a minute.
const abandonedAfter = 3 * time.Second

// KillAbandoned kills transactions that ended processes with the same AppName left open. If such a
// process is alive after all, it retries its transaction.
func (n *Conn) KillAbandoned(ctx context.Context) (int, error) {
	open, err := n.OpenTransactions(ctx)
	if err != nil {
		return 0, err
	}
	return n.KillTransactions(ctx, open, "was abandoned", func(txn OpenTransaction) bool {
		return !txn.active && txn.App == n.App && txn.OpenMicros >= abandonedAfter.Microseconds()
	})
}

// KillTransactions kills the sessions of the chosen transactions, and logs why. It returns how many.
func (n *Conn) KillTransactions(ctx context.Context, open []OpenTransaction, why string, which func(OpenTransaction) bool) (killed int, err error) {
	if n.Quiet {
		return 0, nil // the server itself ends transactions older than a minute
	}
	// Each kill is a command of its own, so that the log names what was killed.
	for _, txn := range open {
		if !which(txn) {
			continue
		}
		err := n.Admin().RunCommand(ctx, bson.D{
			{Key: "killAllSessionsByPattern", Value: bson.A{bson.D{{Key: "lsid", Value: txn.Lsid}}}},
		}).Err()
		if err != nil {
			return killed, fmt.Errorf("kill session: %w", err)
		}
		killed++
		n.Log.Info("killed an open transaction", zap.String("because it", why), zap.String("client", txn.Client),
			zap.String("application", txn.App), zap.Int64("openMicros", txn.OpenMicros))
	}
	return killed, nil
}

// OpenTransaction is an open transaction from currentOp.
type OpenTransaction struct {
	Lsid            bson.Raw // {id, uid}
	Client          string
	App             string // name that the client sent
	active          bool   // runs a command now
	OpenMicros      int64
	HoldsCollection bool
}

// key returns the session in the form that lockInfo uses.
func (t OpenTransaction) key() string {
	_, id, _ := t.Lsid.Lookup("id").BinaryOK()
	_, uid, _ := t.Lsid.Lookup("uid").BinaryOK()
	if len(id) != 16 {
		return ""
	}
	h := hex.EncodeToString(id)
	return fmt.Sprintf("%s-%s-%s-%s-%s, %s", h[:8], h[8:12], h[12:16], h[16:20], h[20:],
		base64.StdEncoding.EncodeToString(uid))
}

// OpenTransactions returns the open transactions of the server.
func (n *Conn) OpenTransactions(ctx context.Context) ([]OpenTransaction, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return nil, err
	}
	// Idle transactions matter most: their clients may be gone, and they hold locks.
	cursor, err := n.Admin().Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{
			{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}, {Key: "localOps", Value: !mongos},
		}}},
		// Only transactions have autocommit false; retryable writes have sessions too.
		bson.D{{Key: "$match", Value: bson.D{{Key: "transaction.parameters.autocommit", Value: false}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("list open transactions: %w", err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("list open transactions: %w", err)
	}
	var open []OpenTransaction
	for _, d := range docs {
		lsid, ok := d.Lookup("lsid").DocumentOK()
		if !ok {
			continue
		}
		// A missing field leaves the zero value; such a transaction is never selected by its age.
		client, _ := d.Lookup("client").StringValueOK()
		micros, _ := rawdoc.Lookup(d, "transaction", "timeOpenMicros").AsInt64OK()
		app, _ := d.Lookup("appName").StringValueOK()
		active, _ := d.Lookup("active").BooleanOK()
		locks, _ := rawdoc.Lookup(d, "locks", "Collection").StringValueOK()
		open = append(open, OpenTransaction{
			Lsid: lsid, Client: client, App: app, active: active, OpenMicros: micros, HoldsCollection: locks != "",
		})
	}
	return open, nil
}

// lockHolders returns the sessions that hold a lock on a collection, in the form of
// OpenTransaction.key.
func (n *Conn) lockHolders(ctx context.Context, ns string) (map[string]bool, error) {
	var reply struct {
		LockInfo []struct {
			Resource string `bson:"resourceId"` // "{4848826274508578515: Collection, 237140256081190611, db.name}"
			Granted  []struct {
				Debug string `bson:"debugInfo"` // "lsid: <uuid>, <uid>, (None), (None)"
			} `bson:"granted"`
		} `bson:"lockInfo"`
	}
	if err := Decode(n.Admin().RunCommand(ctx, bson.D{{Key: "lockInfo", Value: 1}}), &reply); err != nil {
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
