# Every target is listed by `make help` with the text behind its ##.
.DEFAULT_GOAL := help
.PHONY: help run test race bench lint fmt tidy migrate build clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## watch real downloads run through a queue, at most 4 at once from a host (SQLite; or SM_REDIS_URL, SM_DATABASE_URL)
	@go run ./examples/demo

test: ## run every test against real servers, started for it
	scripts/with-servers go test -count=1 -timeout=15m ./...
	cd bench && go test -count=1 ./...

race: ## the same under the race detector
	scripts/with-servers go test -race -count=1 -timeout=30m ./...

bench: ## measure it beside its peers (about 15 minutes; see docs/performance.md)
	@cd bench && ../scripts/with-servers go run .

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted (run: make fmt)"; exit 1; fi
	go vet ./...
	cd bench && go vet ./...
	go tool -modfile=tools/lint/go.mod staticcheck ./...

fmt: ## format the code
	gofmt -w .

tidy: ## tidy the modules
	go mod tidy
	cd tools/lint && go mod tidy
	cd bench && go mod tidy

migrate: ## create or update the table sm_lease in SM_DATABASE_URL
	@go run ./migrations/cmd/migrate

build: ## build every program into bin/
	@mkdir -p bin
	go build -o bin/ ./...

clean: ## remove what build made
	rm -rf bin
