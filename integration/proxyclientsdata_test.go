package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// This file fills the collections of unmodified clients, and compares them with what each was told.

// fillForClients writes what the clients find.
func fillForClients(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	var accounts, records []any
	for i := range clientAccounts {
		accounts = append(accounts, bson.D{{Key: "_id", Value: i}, {Key: "money", Value: 100}})
	}
	for i := range clientRecords {
		records = append(records, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: i}, {Key: "text", Value: strings.Repeat("x", 100)}})
	}
	for name, docs := range map[string][]any{"accounts": accounts, "records": records} {
		if _, err := db.Collection(name).InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMoney fails the test if a transfer made or lost money.
func checkMoney(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	var all []struct {
		Money int64 `bson:"money"`
	}
	found, err := db.Collection("accounts").Find(ctx, bson.D{})
	if err == nil {
		err = found.All(ctx, &all)
	}
	sum := int64(0)
	for _, a := range all {
		sum += a.Money
	}
	if err != nil || sum != 100*clientAccounts {
		t.Errorf("the accounts have %d in all, want %d: %v", sum, 100*clientAccounts, err)
	}
}

// check compares the data with the writes that the database acknowledged to a client.
func (u *unmodified) check(ctx context.Context, t *testing.T, db *mongo.Database) {
	t.Helper()
	if len(u.made) != u.workers {
		t.Errorf("%s: %d workers have told their end, want %d", u.name, len(u.made), u.workers)
	}
	// The last step of a worker that failed may have been made in part.
	exact := !u.failed
	for worker, steps := range u.made {
		var account, tally bson.M
		if err := db.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: worker}}).Decode(&account); err != nil {
			t.Errorf("%s: %v", worker, err)
		}
		if err := db.Collection("entries").FindOne(ctx, bson.D{{Key: "_id", Value: worker + "-tally"}}).Decode(&tally); err != nil {
			t.Errorf("%s: %v", worker, err)
		}
		count := func(suffix string) int64 {
			pattern := bson.Regex{Pattern: "^" + worker + "-[0-9]+-" + suffix}
			n, err := db.Collection("entries").CountDocuments(ctx, bson.D{{Key: "_id", Value: pattern}})
			if err != nil {
				t.Errorf("%s: %v", worker, err)
			}
			return n
		}
		for what, is := range map[string][2]any{
			"counted":             {account["n"], steps},
			"found and modified":  {account["found"], steps},
			"upserted in bulks":   {tally["n"], steps},
			"made transactions":   {count("t"), steps},
			"inserted in bulks":   {count("b"), 2 * steps},
			"deleted not in bulk": {count("b0"), 0},
		} {
			if exact && fmt.Sprint(is[0]) != fmt.Sprint(is[1]) {
				t.Errorf("%s %s %v times, want %v", worker, what, is[0], is[1])
			}
		}
	}
}
