package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const proxyCount = 2

// startProxies starts the proxies of the application, and connects the application to them. The
// controllers must be ready.
func (r *run) startProxies(ctx context.Context) error {
	if err := r.layout.writeProxy(addresses(r.application.controllers)); err != nil {
		return err
	}
	for i := range proxyCount {
		name := fmt.Sprintf("proxy-%d", i+1)
		args := []string{ControllerCommand, "proxy", "--config", r.layout.file(proxyFile)}
		p, err := spawn(name, r.Binary, args, r.environment(), r.layout.file(name+".log"), r.Keep)
		if err != nil {
			return err
		}
		r.proxies = append(r.proxies, p)
	}
	for _, p := range r.proxies {
		err := p.await(ctx, startPatience, func(context.Context) (err error) {
			p.api, err = proxyAddress(p.log)
			return err
		})
		if err != nil {
			return err
		}
	}
	uri, err := r.proxyURI(ctx)
	if err != nil {
		return err
	}
	if r.app, err = mongo.Connect(options.Client().ApplyURI(uri)); err != nil {
		return fmt.Errorf("connect to the proxies: %w", err)
	}
	r.say("the application connects to %d proxies: %s", len(r.proxies), uri)
	return nil
}

// proxyURI returns the application's connection string: all proxies, as with several mongos.
func (r *run) proxyURI(ctx context.Context) (string, error) {
	var hello struct{ Msg string }
	if err := r.mongo.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return "", fmt.Errorf("ask MongoDB whether it is sharded: %w", err)
	}
	uri := "mongodb://" + strings.Join(addresses(r.proxies), ",") + "/"
	// A proxy of a sharded cluster refuses retryable writes.
	if hello.Msg == "isdbgrid" {
		uri += "?retryWrites=false"
	}
	return uri, nil
}

// proxyAddress returns the address that a proxy has written to its log. The proxy chooses a port
// itself, so that no other process can take it before.
func proxyAddress(log string) (string, error) {
	text, err := os.ReadFile(log) // #nosec G304 -- a log that the demo has made
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(text) {
		var l struct{ Msg, Address string }
		if json.Unmarshal(line, &l) == nil && l.Msg == "proxy listens" {
			return l.Address, nil
		}
	}
	return "", errors.New("it has not logged its address")
}
