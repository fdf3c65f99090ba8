package integration_test

import (
	"context"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/workload"
)

// Collections of an application as a driver for Node.js makes them: ObjectIds, a reference,
// embedded documents and lists. In the new version users have names for keys.
const (
	applicationUsers = `lens: 1
key: {from: "{user:objectId}", to: "users/{user}"}
operations:
  - rename: {from: mail, to: email}
  - move: {from: address.city, to: city}
`
	applicationOrders = `lens: 1
operations:
  - reference: {field: userId, kind: users}
  - rename: {from: lines, to: items}
  - each: {field: items, in: list, operations: [rename: {from: count, to: quantity}]}
`
	applicationKinds = `
- {from: users, to: users, lens: packages.yaml, fence: %[1]s}
- {from: orders, to: orders, lens: orders.yaml, fence: %[1]s}
`
)

func userKey(version string, id bson.ObjectID) any {
	if version == "v1" {
		return id
	}
	return "users/" + id.Hex()
}

// userDoc is a user in a version; n is the operation that wrote it last.
func userDoc(version string, id bson.ObjectID, n int32) bson.M {
	name, mail := "user "+id.Hex(), id.Hex()+"@example.com"
	street, city := fmt.Sprintf("street %d", n), fmt.Sprintf("city %d", n)
	if version == "v1" {
		return bson.M{"_id": id, "name": name, "mail": mail, "address": bson.M{"street": street, "city": city}, "n": n}
	}
	return bson.M{"_id": userKey(version, id), "name": name, "email": mail, "address": bson.M{"street": street}, "city": city, "n": n}
}

// userSet is what an update changes.
func userSet(version string, n int32) bson.M {
	street, city := fmt.Sprintf("street %d", n), fmt.Sprintf("city %d", n)
	if version == "v1" {
		return bson.M{"n": n, "address.street": street, "address.city": city}
	}
	return bson.M{"n": n, "address.street": street, "city": city}
}

func orderDoc(version string, id, user bson.ObjectID, n int32) bson.M {
	sku := fmt.Sprintf("sku %d", n)
	if version == "v1" {
		return bson.M{"_id": id, "userId": user, "lines": bson.A{bson.M{"sku": sku, "count": n % 7}}, "n": n}
	}
	return bson.M{"_id": id, "userId": userKey(version, user), "items": bson.A{bson.M{"sku": sku, "quantity": n % 7}}, "n": n}
}

func applicationState(n int32) string { return fmt.Sprintf("operation %d", n) }

// fill makes the collections, with some documents that nobody writes.
func (a applications) fill(ctx context.Context) {
	a.s.t.Helper()
	var users, orders []any
	for range 50 {
		user, order := bson.NewObjectID(), bson.NewObjectID()
		users, orders = append(users, userDoc("v1", user, 0)), append(orders, orderDoc("v1", order, user, 0))
		a.ledger.Put("users/"+user.Hex(), applicationState(0))
		a.ledger.Put("orders/"+order.Hex(), applicationState(0))
	}
	for kind, docs := range map[string][]any{"users": users, "orders": orders} {
		if _, err := a.s.db["v1"].Collection(kind).InsertMany(ctx, docs); err != nil {
			a.s.t.Fatal(err)
		}
	}
}

// look sees all documents of a version.
func (a applications) look(ctx context.Context, version string) (workload.Seen, error) {
	seen := workload.Seen{}
	all := func(kind string, see func(doc bson.M, n int32) (key string, want bson.M)) error {
		cursor, err := a.s.db[version].Collection(kind).Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		var docs []bson.M
		if err := cursor.All(ctx, &docs); err != nil {
			return err
		}
		for _, doc := range docs {
			n, _ := doc["n"].(int32)
			key, want := see(doc, n)
			state := applicationState(n)
			if !same(doc, want) {
				state += fmt.Sprintf(" in %v", doc)
			}
			seen.Add(key, state)
		}
		return nil
	}
	hex := func(v any) bson.ObjectID {
		if id, ok := v.(bson.ObjectID); ok {
			return id
		}
		text, _ := v.(string)
		id, _ := bson.ObjectIDFromHex(text[min(len(text), len("users/")):])
		return id
	}
	if err := all("users", func(doc bson.M, n int32) (string, bson.M) {
		id := hex(doc["_id"])
		return "users/" + id.Hex(), userDoc(version, id, n)
	}); err != nil {
		return nil, err
	}
	return seen, all("orders", func(doc bson.M, n int32) (string, bson.M) {
		id := hex(doc["_id"])
		return "orders/" + id.Hex(), orderDoc(version, id, hex(doc["userId"]), n)
	})
}

// same compares documents, whatever the order of their fields.
func same(a, b bson.M) bool {
	normal := func(m bson.M) (out bson.M) {
		text, err := bson.Marshal(m)
		if err == nil {
			err = bson.Unmarshal(text, &out)
		}
		if err != nil {
			return bson.M{"error": err.Error()}
		}
		for k, v := range out {
			out[k] = unordered(v)
		}
		return out
	}
	return reflect.DeepEqual(normal(a), normal(b))
}

func unordered(v any) any {
	switch v := v.(type) {
	case bson.D:
		m := bson.M{}
		for _, e := range v {
			m[e.Key] = unordered(e.Value)
		}
		return m
	case bson.A:
		for i := range v {
			v[i] = unordered(v[i])
		}
	}
	return v
}
