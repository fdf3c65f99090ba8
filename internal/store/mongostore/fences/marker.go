package fences

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// OwnerCollection holds a database's records about itself (docs/formats.md). The role readWrite
// suffices for it. No kind's options or validators apply to its documents, and they stay when the
// kinds are renamed.
// Owners keeps the marks by which deployments own databases and collections.
type Owners struct {
	*conn.Conn
	validators *validators
}

const OwnerCollection = "dbc_owner"

// Values and prefixes of _id in OwnerCollection, its format, and the attempts of a claim.
const (
	ownerDatabase  = "database"
	OwnerNamespace = "namespace/"
	OwnerKind      = "kind/"
	ownerCollected = "collection/"
	OwnerFormat    = 1
	claimTryLimit  = 10
)

// OwnerDoc is a document of OwnerCollection. Its _id determines which fields it has.
type OwnerDoc struct {
	ID         string   `bson:"_id"`
	Format     int      `bson:"format"`
	Identity   string   `bson:"identity,omitempty"`
	Deployment string   `bson:"deployment,omitempty"`
	Version    string   `bson:"version,omitempty"`
	Kind       string   `bson:"kind,omitempty"`
	Collection string   `bson:"collection,omitempty"` // UUID, 32 hexadecimal digits
	Rev        int64    `bson:"rev,omitempty"`
	Mark       bson.Raw `bson:"mark,omitempty"`
}

func (d OwnerDoc) owner() record.Owner {
	return record.Owner{Deployment: d.Deployment, Version: d.Version}
}

// owners returns the collection of ownership marks, with majority reads and writes.
func (n *Owners) owners() *mongo.Collection { return n.DB.Collection(OwnerCollection) }

// Identity returns the identity of the cluster and of the database. Each part is empty if it is
// unknown.
func (n *Owners) Identity(ctx context.Context) (record.Identity, error) {
	var d OwnerDoc
	var cluster string
	var unknown error
	var g sync.WaitGroup // the server may be far away
	g.Go(func() { cluster, unknown = n.clusterID(ctx) })
	err := conn.Decode(n.owners().FindOne(ctx, bson.D{{Key: "_id", Value: ownerDatabase}}), &d)
	g.Wait()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return record.Identity{}, n.markError("read the identity", err)
	}
	if err := checkOwnerFormat(d); err != nil {
		return record.Identity{}, n.markError("read the identity", err)
	}
	if unknown != nil {
		return record.Identity{}, n.markError("read the identity of the cluster", unknown)
	}
	return record.Identity{Cluster: cluster, Database: d.Identity}, nil
}

// Identify creates the identity of the database if it has none, and returns it.
func (n *Owners) Identify(ctx context.Context) (record.Identity, error) {
	// Concurrent callers must agree, so only the first one sets the identity.
	_, err := n.owners().UpdateByID(ctx, ownerDatabase, bson.D{{Key: "$setOnInsert", Value: bson.D{
		{Key: "format", Value: OwnerFormat}, {Key: "identity", Value: rand.Text()},
	}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !conn.HasCode(err, conn.CodeDuplicateKey) {
		return record.Identity{}, n.markError("note the identity", err)
	}
	return n.Identity(ctx)
}

// clusterID returns the replicaSetId, or the clusterId of a sharded cluster. It is empty if the
// privileges do not allow reading it.
func (n *Owners) clusterID(ctx context.Context) (string, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return "", err
	}
	// Routers do not know a replica set; the config database has the cluster's identity.
	if mongos {
		var v struct {
			ID bson.ObjectID `bson:"clusterId"`
		}
		err := conn.Decode(n.Mongo.Database("config").Collection("version").FindOne(ctx, bson.D{}), &v)
		switch {
		case conn.HasCode(err, conn.CodeUnauthorized), errors.Is(err, mongo.ErrNoDocuments), err == nil && v.ID.IsZero():
			return "", nil
		case err != nil:
			return "", err
		}
		return "sharded/" + v.ID.Hex(), nil
	}
	raw, err := n.Admin().RunCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}).Raw()
	// Without the privilege, the mark of the database alone identifies it.
	if conn.HasCode(err, conn.CodeUnauthorized, conn.CodeCommandNotFound, conn.CodeAPIStrict) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id, ok := rawdoc.Lookup(raw, "config", "settings", "replicaSetId").ObjectIDOK()
	if !ok {
		return "", nil
	}
	return "replicaSet/" + id.Hex(), nil
}

// Marks returns the marks of all namespaces in the database.
func (n *Owners) Marks(ctx context.Context) ([]record.Mark, error) {
	docs, err := n.OwnerDocs(ctx, OwnerNamespace)
	if err != nil {
		return nil, err
	}
	var marks []record.Mark
	for _, d := range docs {
		marks = append(marks, record.Mark{Owner: d.owner(), Rev: d.Rev, Body: d.Mark})
	}
	return marks, nil
}

// OwnerDocs returns the documents whose _id begins with a prefix. It retries temporary errors.
// Clients read here which key encrypts their writes, and an election or a changed login must not
// fail those.
func (n *Owners) OwnerDocs(ctx context.Context, prefix string) ([]OwnerDoc, error) {
	// The least string after all strings with the prefix.
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	var docs []OwnerDoc
	err := conn.Reading(ctx, func() error {
		cursor, err := n.owners().Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: end}}}})
		if err != nil {
			return err
		}
		return conn.All(ctx, cursor, &docs)
	})
	if err != nil {
		return nil, n.markError("read marks", err)
	}
	for _, d := range docs {
		if err := checkOwnerFormat(d); err != nil {
			return nil, n.markError("read marks", err)
		}
	}
	return docs, nil
}

func checkOwnerFormat(d OwnerDoc) error {
	if d.Format > OwnerFormat {
		return fmt.Errorf("mark %s has format %d, but this binary knows %d: use a newer binary", d.ID, d.Format, OwnerFormat)
	}
	return nil
}

// OwnerID returns the _id of an owner's document.
func OwnerID(o record.Owner) string { return OwnerNamespace + o.Deployment + "/" + o.Version }

// PutMark replaces the mark with revision m.Rev, or inserts the first one if that is 0. It returns
// record.ErrMismatch if the stored revision or body differs, and ErrUnknown if the outcome is unknown.
func (n *Owners) PutMark(ctx context.Context, m record.Mark) error {
	what := "write the mark of " + m.Owner.String()
	doc := OwnerDoc{
		ID: OwnerID(m.Owner), Format: OwnerFormat, Deployment: m.Owner.Deployment, Version: m.Owner.Version,
		Rev: m.Rev + 1, Mark: m.Body,
	}
	var replaced bool
	var err error
	// Without an earlier mark, only an insert is safe from a concurrent first one.
	if m.Rev == 0 {
		_, err = n.owners().InsertOne(ctx, doc)
		replaced = !conn.HasCode(err, conn.CodeDuplicateKey)
	} else {
		has := bson.D{{Key: "_id", Value: doc.ID}, {Key: "rev", Value: m.Rev}}
		if m.Was != nil {
			has = append(has, bson.E{Key: "mark", Value: m.Was})
		}
		var res *mongo.UpdateResult
		res, err = n.owners().ReplaceOne(ctx, has, doc)
		replaced = err != nil || res.MatchedCount > 0
	}
	switch {
	case !replaced:
		// Another process wrote first; the caller reads again.
		return n.markError(what, fmt.Errorf("revision %d is not the current one: %w", m.Rev, record.ErrMismatch))
	case err != nil && conn.OutcomeUnknown(err):
		return n.markError(what, fmt.Errorf("%w: %w", record.ErrUnknown, err))
	case err != nil:
		return n.markError(what, err)
	}
	return nil
}

// Claim records the owner of a kind's collection. It inserts two documents, one for the collection
// and one for the kind's name, and either can be claimed only once. Repeating a claim is safe.
// record.OwnedError reports another owner.
func (n *Owners) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	what := "claim " + tok.Name
	kind := OwnerDoc{
		ID: OwnerKind + tok.Kind, Format: OwnerFormat, Deployment: owner.Deployment, Version: owner.Version,
		Kind: tok.Kind, Collection: tok.ID,
	}
	collected := kind
	collected.ID, collected.Collection = ownerCollected+tok.ID, ""
	if tok.ID != "" {
		// Claim the collection first, so that nobody claims it as another kind in between.
		if err := n.claim(ctx, collected, func(has OwnerDoc) bool { return has.Kind == tok.Kind }); err != nil {
			return n.markError(what, err)
		}
	}
	err := n.claim(ctx, kind, func(has OwnerDoc) bool { return has.Collection == tok.ID })
	// Under a fixed-name kind's own name, the application replaced its collection; the claim
	// follows.
	var other *record.OwnedError
	if errors.As(err, &other) && other.Has != "" && tok.Fixed && tok.Name == tok.Kind {
		err = n.claimOver(ctx, kind, other.Has)
	}
	var refused *record.OwnedError
	// Only the first of the two documents was inserted. Remove it, or it would block a later claim.
	if errors.As(err, &refused) && tok.ID != "" {
		_, undo := n.owners().DeleteOne(ctx, bson.D{{Key: "_id", Value: collected.ID}})
		err = errors.Join(err, undo)
	}
	return n.markError(what, err)
}

// claim inserts a document, unless the owner has it already. It replaces a document of the same
// owner for a collection that no longer exists.
func (n *Owners) claim(ctx context.Context, d OwnerDoc, same func(has OwnerDoc) bool) error {
	// Others may claim and release between the insert and the read.
	for range claimTryLimit {
		_, err := n.owners().InsertOne(ctx, d)
		if err == nil {
			return nil
		}
		if !conn.HasCode(err, conn.CodeDuplicateKey) {
			return conn.ClassifyWrite("note whose it is", err)
		}
		var has OwnerDoc
		err = conn.Decode(n.owners().FindOne(ctx, bson.D{{Key: "_id", Value: d.ID}}), &has)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			continue
		case err != nil:
			return err
		}
		if err := checkOwnerFormat(has); err != nil {
			return err
		}
		refused := &record.OwnedError{Kind: d.Kind, ID: d.Collection, Owner: has.owner()}
		switch {
		case has.owner() == d.owner() && same(has):
			// This node alone may know the claim, so wait for a majority.
			return n.ConfirmMajority(ctx)
		case has.owner() != d.owner() || has.Collection == "":
			return refused
		}
		// The owner claimed another collection for the kind, which was dropped by hand or still
		// exists.
		_, err = n.Locate(ctx, has.Collection)
		if err == nil {
			refused.Has = has.Collection
			return refused
		}
		if !errors.Is(err, record.ErrNotFound) {
			return err
		}
		if err := n.validators.carryRestore(ctx, has.Collection, d.Collection); err != nil {
			return err
		}
		// In one step, so that the kind always has an owner.
		res, err := n.owners().ReplaceOne(ctx, bson.D{{Key: "_id", Value: d.ID}, {Key: "collection", Value: has.Collection}}, d)
		if err != nil {
			return conn.ClassifyWrite("note whose it is", err)
		}
		if res.MatchedCount > 0 {
			return nil
		}
	}
	return errors.New("other clients keep claiming it")
}

// claimOver moves the claim of a fixed-name kind from the collection has to the one that now has
// the kind's name. With several callers, or after a crash halfway, the claim of the kind decides.
func (n *Owners) claimOver(ctx context.Context, d OwnerDoc, has string) error {
	uuid, err := conn.CollectionUUID(d.Collection)
	if err != nil {
		return err
	}
	under, err := n.CollectionNamed(ctx, d.Kind)
	if err != nil {
		return err
	}
	if under == nil || !under.Is(uuid) {
		return fmt.Errorf("collection %s does not have the name %s now: %w", d.Collection, d.Kind, record.ErrMismatch)
	}
	if err := n.validators.carryRestore(ctx, has, d.Collection); err != nil {
		return err
	}
	res, err := n.owners().ReplaceOne(ctx, bson.D{{Key: "_id", Value: d.ID}, {Key: "collection", Value: has}}, d)
	if err != nil {
		return conn.ClassifyWrite("note whose it is", err)
	}
	// Another caller was faster.
	if res.MatchedCount == 0 {
		return n.claim(ctx, d, func(now OwnerDoc) bool { return now.Collection == d.Collection })
	}
	_, err = n.owners().DeleteOne(ctx, bson.D{{Key: "_id", Value: ownerCollected + has}, {Key: "deployment", Value: d.Deployment}, {Key: "version", Value: d.Version}})
	return err
}

// ConfirmMajority returns nil once a majority has everything that was read, at the real primary.
// The update matches nothing; only its write concern matters.
func (n *Owners) ConfirmMajority(ctx context.Context) error {
	_, err := n.owners().UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.NewObjectID()}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})
	return err
}

// Claims returns the claims and the current names of the collections.
func (n *Owners) Claims(ctx context.Context) ([]record.Claim, error) {
	docs, err := n.OwnerDocs(ctx, OwnerKind)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	// One list, so that all claims are compared at the same moment.
	found, err := n.List(ctx, bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		return nil, n.markError("read claims", err)
	}
	byID, bearers := map[string]conn.Collection{}, map[string]string{}
	for _, c := range found {
		byID[c.ID()], bearers[c.Name] = c, c.ID()
	}
	claimed := map[string]bool{}
	for _, d := range docs {
		claimed[d.Collection] = true
	}
	var claims []record.Claim
	for _, d := range docs {
		c := record.Claim{Owner: d.owner(), Kind: d.Kind, ID: d.Collection, Bearer: bearers[d.Kind]}
		if at, ok := byID[d.Collection]; ok {
			c.Name, c.Fence = at.Name, at.FenceMark()
		} else {
			c.Instead, c.InsteadName, c.Fence = insteadOf(d.Kind, found, claimed)
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// insteadOf finds the only collection that has a name of the kind and no owner. movePrimary,
// moveCollection, reshardCollection and unshardCollection create a collection again under its name,
// with all documents, and drop the old one. The collections that occupy names of the kind since an
// aborted attempt do not count (Prevent).
func insteadOf(kind string, found []conn.Collection, claimed map[string]bool) (id, name, fence string) {
	for _, c := range found {
		if k, _, hidden := record.KindOfPhysical(c.Name); claimed[c.ID()] || c.Occupies() != "" || c.Name != kind && (!hidden || k != kind) {
			continue
		}
		// Two candidates: guessing could take a foreign collection.
		if id != "" {
			return "", "", ""
		}
		id, name, fence = c.ID(), c.Name, c.FenceMark()
	}
	return id, name, fence
}

// Release deletes all marks and claims of an owner. It may be repeated.
func (n *Owners) Release(ctx context.Context, owner record.Owner) error {
	_, err := n.owners().DeleteMany(ctx, bson.D{{Key: "deployment", Value: owner.Deployment}, {Key: "version", Value: owner.Version}})
	return n.markError("release "+owner.String(), err)
}

// Disclaim deletes the claims of a dropped collection.
func (n *Owners) Disclaim(ctx context.Context, tok record.Token) error {
	which := bson.D{{Key: "_id", Value: OwnerKind + tok.Kind}, {Key: "collection", Value: bson.D{{Key: "$exists", Value: false}}}}
	if tok.ID != "" {
		which = bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "_id", Value: ownerCollected + tok.ID}},
			bson.D{{Key: "_id", Value: OwnerKind + tok.Kind}, {Key: "collection", Value: tok.ID}},
		}}}
	}
	_, err := n.owners().DeleteMany(ctx, which)
	return err
}

func (n *Owners) markError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in %s: %w", what, n.Location(), conn.WithPrivilege(err))
}
