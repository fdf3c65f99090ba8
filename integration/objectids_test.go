package integration_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Collections as a driver for Node.js writes them: ObjectIds, references to them, and
// embedded lists whose items have an _id each. Users get names, posts get documents, and
// carts keep their _id while their lines get documents.
const (
	objectIDUsers = `
key: {from: "{user:objectId}", to: "users/{user}"}
operations:
  - fanOut: {field: addresses, as: list, kind: addresses, key: "users/{user}/{id:objectId}", id: _id, order: at}
`
	objectIDPosts = `
key: {from: "{n:number}", to: {tenant: "{tenant}", n: "{n:number}"}, with: {tenant: acme}}
operations:
  - reference: {field: author, kind: users}
  - reference: {field: likes, kind: users, list: true}
`
	objectIDCarts = `
operations:
  - reference: {field: user, kind: users}
  - fanOut: {field: lines, as: list, kind: lines, key: {cart: "{_key}", line: "{id}"}, id: _id, order: at, parent: cart}
`
	objectIDKinds = `
- {from: users, to: users, lens: packages.yaml}
- {from: posts, to: posts, lens: posts.yaml}
- {from: carts, to: carts, lens: carts.yaml}
`
)

// TestObjectIDsThereAndBack takes collections with ObjectIds through a switch and back.
// What the application does under the new keys is followed under the old ones, and the
// other way round, deletes by the key alone.
func TestObjectIDsThereAndBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{lens: objectIDUsers, kinds: objectIDKinds})
	s.write("posts.yaml", objectIDPosts)
	s.write("carts.yaml", objectIDCarts)
	c := collections{t}
	const id = `{"$oid":"655f1e5e00000000000000%02x"}`
	const documents = 40
	for i := range documents {
		c.insert(s.db["v1"], "users", `{"_id":`+id+`,"addresses":[{"street":"b","_id":`+id+`},{"street":"a","_id":`+id+`}]}`, i, i+100, i)
		number := fmt.Sprint(i)
		if i == 6 {
			number = `{"$numberDouble":"6.0"}`
		}
		c.insert(s.db["v1"], "posts", `{"_id":%s,"author":`+id+`,"likes":[`+id+`,`+id+`]}`, number, i, 1, 2)
		c.insert(s.db["v1"], "carts", `{"_id":`+id+`,"user":`+id+`,"lines":[{"n":1,"_id":`+id+`}]}`, i, i, i+200)
	}
	s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	for kind, want := range map[string]string{
		"users":     `{"_id":"users/655f1e5e0000000000000007"}`,
		"addresses": `{"_id":"users/655f1e5e0000000000000007/655f1e5e000000000000006b","at":0,"street":"b"}`,
		"posts":     `{"_id":{"tenant":"acme","n":7},"author":"users/655f1e5e0000000000000007","likes":["users/655f1e5e0000000000000001","users/655f1e5e0000000000000002"]}`,
		"carts":     `{"_id":{"$oid":"655f1e5e0000000000000007"},"user":"users/655f1e5e0000000000000007"}`,
		"lines":     `{"_id":{"cart":{"$oid":"655f1e5e0000000000000007"},"line":{"$oid":"655f1e5e00000000000000cf"}},"cart":{"$oid":"655f1e5e0000000000000007"},"at":0,"n":1}`,
	} {
		c.has(s.db["v2"], kind, want)
	}

	// A post and an address go, a user comes with an address and a post of its own, a line
	// moves to another cart.
	v1, v2 := s.db["v1"], s.db["v2"]
	c.remove(v2, "posts", `{"_id":{"tenant":"acme","n":3}}`)
	c.remove(v2, "addresses", `{"_id":"users/655f1e5e0000000000000007/655f1e5e000000000000006b"}`)
	c.insert(v2, "users", `{"_id":"users/655f1e5e00000000000000ff","name":"new"}`)
	c.insert(v2, "posts", `{"_id":{"tenant":"acme","n":1000},"author":"users/655f1e5e00000000000000ff"}`)
	c.ok(v2.Collection("posts").UpdateOne(ctx, c.document(`{"_id":{"tenant":"acme","n":6}}`), c.document(`{"$set":{"read":true}}`)))
	c.remove(v2, "lines", `{"_id":{"cart":{"$oid":"655f1e5e0000000000000007"},"line":{"$oid":"655f1e5e00000000000000cf"}}}`)
	c.insert(v2, "lines", `{"_id":{"cart":{"$oid":"655f1e5e0000000000000008"},"line":{"$oid":"655f1e5e00000000000000cf"}},"cart":{"$oid":"655f1e5e0000000000000008"},"at":1,"n":2}`)
	eventually(ctx, t, "the old namespace to follow", func() error {
		for kind, want := range map[string]string{
			"users": `{"_id":{"$oid":"655f1e5e00000000000000ff"},"name":"new"}`,
			"posts": `{"_id":1000,"author":{"$oid":"655f1e5e00000000000000ff"}}`,
			"carts": `{"_id":{"$oid":"655f1e5e0000000000000008"},"user":{"$oid":"655f1e5e0000000000000008"},"lines":[{"n":1,"_id":{"$oid":"655f1e5e00000000000000d0"}},{"_id":{"$oid":"655f1e5e00000000000000cf"},"n":2}]}`,
		} {
			if err := c.find(v1, kind, want); err != nil {
				return err
			}
		}
		if err := c.find(v1, "users", `{"_id":{"$oid":"655f1e5e0000000000000007"},"addresses":[{"street":"a","_id":{"$oid":"655f1e5e0000000000000007"}}]}`); err != nil {
			return err
		}
		if err := c.find(v1, "carts", `{"_id":{"$oid":"655f1e5e0000000000000007"},"user":{"$oid":"655f1e5e0000000000000007"}}`); err != nil {
			return err
		}
		if n, err := v1.Collection("posts").CountDocuments(ctx, c.document(`{"_id":{"$type":"double"},"read":true}`)); err != nil || n != 1 {
			return fmt.Errorf("%d changed posts have the double that they had (%v)", n, err)
		}
		return c.gone(v1, "posts", `{"_id":3}`)
	})

	s.beginTo(ctx, "v1")
	s.await(ctx, "the flip back", flipped("v1"))
	// A driver may send the number as another type: the key is the same.
	c.remove(v1, "posts", `{"_id":{"$numberDouble":"4.0"}}`)
	c.remove(v1, "users", `{"_id":{"$oid":"655f1e5e0000000000000009"}}`)
	c.insert(v1, "posts", `{"_id":2000,"author":{"$oid":"655f1e5e0000000000000007"},"likes":[]}`)
	eventually(ctx, t, "the new namespace to follow", func() error {
		if err := c.find(v2, "posts", `{"_id":{"tenant":"acme","n":2000},"author":"users/655f1e5e0000000000000007","likes":[]}`); err != nil {
			return err
		}
		for kind, id := range map[string]string{
			"posts":     `{"_id":{"tenant":"acme","n":4}}`,
			"users":     `{"_id":"users/655f1e5e0000000000000009"}`,
			"addresses": `{"_id":"users/655f1e5e0000000000000009/655f1e5e000000000000006d"}`,
		} {
			if err := c.gone(v2, kind, id); err != nil {
				return err
			}
		}
		return nil
	})
	for kind, want := range map[string]int64{"users": documents, "posts": documents, "carts": documents} {
		if n, err := v1.Collection(kind).CountDocuments(ctx, bson.D{}); err != nil || n != want {
			t.Errorf("%s has %d documents, want %d (%v)", kind, n, want, err)
		}
	}
}

// remove deletes a document that is there.
func (c collections) remove(db *mongo.Database, kind, id string) {
	c.t.Helper()
	res, err := db.Collection(kind).DeleteOne(c.t.Context(), c.document(id))
	c.ok(res, err)
	if res.DeletedCount != 1 {
		c.t.Fatalf("%s has no %s", kind, id)
	}
}

// gone reports a document that is there still.
func (c collections) gone(db *mongo.Database, kind, id string) error {
	c.t.Helper()
	n, err := db.Collection(kind).CountDocuments(c.t.Context(), c.document(id))
	if err == nil && n > 0 {
		err = fmt.Errorf("%s has %s still", kind, id)
	}
	return err
}
