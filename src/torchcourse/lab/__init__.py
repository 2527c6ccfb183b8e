"""What single labs work with: a budget of batches, a training run to interrupt, the targets of the capstone."""
