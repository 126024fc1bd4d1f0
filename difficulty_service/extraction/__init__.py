"""From images to features: shard by shard, in batches that are decoded ahead."""
